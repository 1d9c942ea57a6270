-- Intervals before their function in which attempts waited, by the transitions of their workers,
-- and what for: `transfer` (a dependency was on its way), `waiting to fetch` (dependencies had to be
-- fetched, and none was on its way), `waiting for a resource`. Times are in ns.
-- depends on: _bounds, _held, attempts, graph_edges, phases
-- by key: attempts, graph_edges, phases
-- order: attempt, start
with held as (
    select worker, _key, state, a, coalesce(b, epoch_ns(last)) as b from _held cross join _bounds
), begun as (
    select attempt, min(epoch_ns(start)) filter (action <> 'transfer') as t
    from phases group by attempt
), windows as (
    select a.attempt, a._key, a.worker, epoch_ns(a.start) as t0,
           coalesce(least(f.t, epoch_ns(a.stop)), epoch_ns(b.last)) as t1
    from attempts a cross join _bounds b left join begun f on f.attempt = a.attempt
    where a.start is not null and exists (from held)
), edges as (
    select distinct _key, _dependency from graph_edges
    where _dependency in (select _key from held where state <> 'constrained')
), fetched as (
    select w.attempt, w._key, w.worker, h.state, greatest(h.a, w.t0) as a, least(h.b, w.t1) as b
    from windows w join edges e on e._key = w._key
    join held h on h._key = e._dependency and h.worker = w.worker
     and h.state <> 'constrained' and h.a < w.t1 and h.b > w.t0
), ends as (
    select attempt, any_value(_key) as _key, any_value(worker) as worker, t,
           sum(d) filter (state = 'flight') as n_flight, sum(d) filter (state = 'fetch') as n_fetch
    from (select attempt, _key, worker, state, a as t, 1 as d from fetched where b > a
          union all select attempt, _key, worker, state, b, -1 from fetched where b > a)
    group by attempt, t
), counted as (
    select attempt, _key, worker, t as start, lead(t) over (partition by attempt order by t) as stop,
           sum(coalesce(n_flight, 0)) over w as flying,
           sum(coalesce(n_fetch, 0)) over w as waiting
    from ends window w as (partition by attempt order by t rows unbounded preceding)
)
select attempt, _key, worker, start, stop,
       case when flying > 0 then 'transfer' else 'waiting to fetch' end as cause
from counted where stop > start and (flying > 0 or waiting > 0)
union all by name
select w.attempt, w._key, w.worker, greatest(h.a, w.t0) as start, least(h.b, w.t1) as stop,
       'waiting for a resource' as cause
from windows w join held h on h._key = w._key and h.worker = w.worker
 and h.state = 'constrained' and h.a < w.t1 and h.b > w.t0
