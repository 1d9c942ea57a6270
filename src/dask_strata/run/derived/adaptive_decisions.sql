-- Decisions of adaptive scaling, each with the last number of workers that Dask had computed by then.
-- depends on: adaptive_log, adaptive_targets
select d.time, d.cluster, d.status, d.target, d.n_plan, d.n_requested, d.n_observed, d.minimum,
       d.maximum, d.workers,
       case when t.target < d.minimum and d.target = d.minimum then 'minimum'
            when t.target > d.maximum and d.target = d.maximum then 'maximum'
            else t.reason end as reason,
       t.target as wanted, t.target_seconds, t.occupancy_seconds, t.processing, t.queued,
       t.no_worker, t.n_workers, t.n_threads, t.results_bytes, t.memory_limit_bytes
from adaptive_log d asof left join adaptive_targets t on t.time <= d.time
order by d.time
