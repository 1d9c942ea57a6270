-- Attempts on workers with samples of a GPU, from the start of their function to its end.
-- depends on: attempts, gpu_samples, phases
with gpus as (
    select distinct worker from gpu_samples
), ran as (
    select attempt, min(start) as start, max(stop) as stop from phases
    where action in ('compute', 'executing') and worker in (from gpus) group by attempt
), times as (
    select a.attempt, a.worker, coalesce(r.start, a.start) as start,
           coalesce(r.stop, a.stop) as stop
    from attempts a left join ran r using (attempt) where a.worker in (from gpus)
)
select t.attempt, t.worker, t.start, t.stop, count(s.time) as n_samples,
       avg(s.utilization) as utilization, max(s.used_bytes) as peak_bytes
from times t left join gpu_samples s
  on s.worker = t.worker and s.time >= t.start and s.time <= t.stop
group by t.attempt, t.worker, t.start, t.stop order by t.attempt
