-- Times in which a worker that was removed because it sent no heartbeat gave no sign of life: from
-- its last sample or transition until the scheduler removed it.
-- depends on: worker_ends, worker_samples, worker_transitions
with removed as (
    select worker, start, stop from worker_ends where cause = 'no heartbeat' and start is not null
), signs as (
    select worker, time from worker_samples where seen_by = 'worker'
    union all
    select worker, time from worker_transitions
)
select r.worker, max(s.time) as start, r.stop
from removed r join signs s on s.worker = r.worker and s.time between r.start and r.stop
group by r.worker, r.stop
