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
)
select t.attempt, t.worker, t.start, t.stop, count(s.time) as n_samples,
       avg(s.utilization) as utilization, max(s.used_bytes) as peak_bytes
from times t left join gpu_samples s
  on s.worker = t.worker and epoch_ns(s.time) between epoch_ns(t.start) and epoch_ns(t.stop)
group by t.attempt, t.worker, t.start, t.stop order by t.attempt
