-- Attempts on workers with samples of a GPU, from the start of their function to its end.
-- depends on: attempts, gpu_samples, phases
with gpus as (
    select distinct worker from gpu_samples
), ran as (
    select attempt, min(start) as start, max(stop) as stop from phases
    where action in ('compute', 'executing') and worker in (from gpus) group by attempt
), times as (
    -- Both have the same type only in later versions of DuckDB.
    select a.attempt, a.worker,
           coalesce(r.start::timestamp_ns, a.start::timestamp_ns) as start,
           coalesce(r.stop::timestamp_ns, a.stop::timestamp_ns) as stop
    from attempts a left join ran r using (attempt) where a.worker in (from gpus)
), seconds as (
    -- Joined by seconds, as a join by intervals alone compares each attempt with all samples.
    select attempt, worker, epoch_ns(start) as a, epoch_ns(stop) as b,
           unnest(generate_series(a // 1000000000, b // 1000000000)) as second
    from times
), sums as (
    select t.attempt, count(*) as n, avg(s.utilization) as utilization,
           max(s.used_bytes) as peak_bytes
    from seconds t join gpu_samples s
      on s.worker = t.worker and epoch_ns(s.time) // 1000000000 = t.second
     and epoch_ns(s.time) between t.a and t.b
    group by t.attempt
)
select t.attempt, t.worker, t.start, t.stop, coalesce(s.n, 0) as n_samples, s.utilization,
       s.peak_bytes
from times t left join sums s using (attempt) order by t.attempt
