-- Parts of attempts' phases disk-read and disk-write, in ns: whether their worker did read or write
-- (`spill`). Dask calls each slow look at a worker's results disk-read, also if none was spilled.
-- depends on: _scheduler_attempts, _scheduler_phases, spills
-- by key: _scheduler_attempts, _scheduler_phases
with disks as (
    select p.number, s._key, p.action, s.last_worker as worker, epoch_ns(p.start) as t0,
           greatest(epoch_ns(p.start), coalesce(max(epoch_ns(p.stop)) over (
               partition by p.number order by p.start, p.stop
               rows between unbounded preceding and 1 preceding), epoch_ns(p.start))) as a,
           epoch_ns(p.stop) as b
    from _scheduler_phases p join _scheduler_attempts s on s.number = p.number
    where p.action like 'disk%'
), moved as (
    select worker, epoch_ns(time) - (seconds * 1e9)::bigint as a, epoch_ns(time) as b
    from spills where seconds is not null
), pieces as (
    select d.number, d._key, d.action, d.a as t0, greatest(d.a, m.a) as a, least(d.b, m.b) as b, true as spill
    from disks d join moved m on m.worker = d.worker and m.b > d.a and m.a < d.b where d.b > d.a
    union all by name
    select number, _key, action, a as t0, b as a, b, false as spill from disks where b > a
), without_overlap as (
    select number, _key, action, t0, spill, b,
           coalesce(max(b) over w, t0) as before, greatest(a, coalesce(max(b) over w, a)) as a
    from pieces window w as (
        partition by number, t0 order by a, b rows between unbounded preceding and 1 preceding)
)
select number, _key, action, a as start, b as stop, true as spill from without_overlap
where spill and b > a
union all by name
select number, _key, action, before as start, a as stop, false as spill from without_overlap
where a > before
