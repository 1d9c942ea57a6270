-- Processes of workers, with the time for which their memory was above each limit of Dask's. A sample
-- counts until the next one of its worker; the last one counts for no time.
-- depends on: executions, memory_limits, worker_samples, workers
with limits as (
    select process, worker, arg_max(limit_bytes, time) as limit_bytes,
           arg_max(target_bytes, time) as target_bytes, arg_max(spill_bytes, time) as spill_bytes,
           arg_max(pause_bytes, time) as pause_bytes,
           arg_max(terminate_bytes, time) as terminate_bytes
    from memory_limits group by process, worker
), samples as (
    select process, worker, time, rss_bytes, managed_bytes,
           (epoch_ns(lead(time) over (partition by process, worker order by time))
            - epoch_ns(time)) / 1e9 as seconds
    from worker_samples where seen_by = 'worker'
), sums as (
    select s.process, s.worker, max(s.rss_bytes) as peak_bytes,
           max(s.managed_bytes) as results_peak_bytes, coalesce(sum(s.seconds), 0) as seconds,
           coalesce(sum(s.seconds) filter (s.managed_bytes > l.target_bytes), 0) as target,
           coalesce(sum(s.seconds) filter (s.rss_bytes > l.spill_bytes), 0) as spill,
           coalesce(sum(s.seconds) filter (s.rss_bytes > l.pause_bytes), 0) as pause,
           coalesce(sum(s.seconds) filter (s.rss_bytes > l.terminate_bytes), 0) as terminate
    from samples s left join limits l using (process, worker) group by s.process, s.worker
), peaks as (
    select process, worker, max(rss_peak_bytes) as peak_bytes from executions group by process, worker
), names as (
    select process, worker, any_value(name) as name from workers group by process, worker
)
select worker, n.name, process, l.limit_bytes, l.target_bytes, l.spill_bytes, l.pause_bytes,
       l.terminate_bytes, greatest(s.peak_bytes, p.peak_bytes) as peak_bytes, s.results_peak_bytes,
       s.seconds,
       case when s.results_peak_bytes is not null and l.target_bytes is not null
           then s.target end as above_target_seconds,
       case when s.peak_bytes is not null and l.spill_bytes is not null
           then s.spill end as above_spill_seconds,
       case when s.peak_bytes is not null and l.pause_bytes is not null
           then s.pause end as above_pause_seconds,
       case when s.peak_bytes is not null and l.terminate_bytes is not null
           then s.terminate end as above_terminate_seconds
from limits l full outer join sums s using (process, worker)
left join peaks p using (process, worker) left join names n using (process, worker)
order by worker, process
