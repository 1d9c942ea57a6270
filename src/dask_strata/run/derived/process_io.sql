-- Bytes that processes read and wrote, and the parts of them that tasks, libraries and the recorder
-- account for. Servers of one cluster may share a process of the operating system and its counters.
-- depends on: executions, library_reads, overheads, process_samples, processes
with process_totals as (
    select p.host, p.pid, any_value(p.process) filter (p.role = 'worker') as process,
           string_agg(distinct p.role, ', ' order by p.role) as roles,
           -- A difference needs two samples.
           case when count(s.read_bytes) > 1
                then max(s.read_bytes) - min(s.read_bytes) end as read_bytes,
           case when count(s.write_bytes) > 1
                then max(s.write_bytes) - min(s.write_bytes) end as write_bytes
    from process_samples s join processes p using (process)
    group by p.host, p.pid
), task_totals as (
    select p.host, p.pid, sum(e.read_bytes)::bigint as read_bytes,
           sum(e.write_bytes)::bigint as write_bytes,
           -- The bytes that a library counts may be those that the task's own thread read.
           sum(greatest(0, l.requested_bytes - coalesce(e.read_bytes, 0)))::bigint
               as library_bytes,
           sum(greatest(0, e.other_read_bytes
                   - greatest(0, coalesce(l.requested_bytes, 0) - coalesce(e.read_bytes, 0))
               ))::bigint as other_read_bytes,
           sum(e.other_write_bytes)::bigint as other_write_bytes
    from executions e join processes p using (process)
    left join (
        select process, execution, sum(requested_bytes) as requested_bytes
        from library_reads group by process, execution
    ) l using (process, execution)
    group by p.host, p.pid
), recorded_by as (
    -- Frames that are sent over Dask's connections are written to no file of the process. Older
    -- versions recorded only a part of the recorder's bytes.
    select host, pid, sum(read_bytes)::bigint as read_bytes,
           sum(write_bytes)::bigint as write_bytes
    from (
        select p.host, p.pid, max(o.read_bytes) as read_bytes,
               max(case when p.transport = 'file' then o.written_bytes else 0 end) as write_bytes
        from overheads o join processes p using (process)
        where p.transport is not null and o.read_bytes is not null
        group by p.host, p.pid, o.process
    ) group by host, pid
)
select s.process, s.host, s.pid, s.roles, s.read_bytes, s.write_bytes,
       t.read_bytes as task_read_bytes, t.write_bytes as task_write_bytes,
       t.library_bytes as library_read_bytes, t.other_read_bytes, t.other_write_bytes,
       r.read_bytes as recorder_read_bytes, r.write_bytes as recorder_write_bytes,
       -- A process that was killed may have run tasks after its last sample.
       case when s.read_bytes >= t.read_bytes then
            greatest(0, s.read_bytes - t.read_bytes - coalesce(t.library_bytes, 0)
                - coalesce(t.other_read_bytes, 0) - coalesce(r.read_bytes, 0))
       end as unattributed_read_bytes,
       case when s.write_bytes >= t.write_bytes then
            greatest(0, s.write_bytes - t.write_bytes - coalesce(t.other_write_bytes, 0)
                - coalesce(r.write_bytes, 0))
       end as unattributed_write_bytes
from process_totals s left join task_totals t on t.host = s.host and t.pid = s.pid
left join recorded_by r on r.host = s.host and r.pid = s.pid
order by s.host, s.pid
