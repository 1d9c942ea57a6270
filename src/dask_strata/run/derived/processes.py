"""What processes read and wrote, and what of it tasks did, as SQL: see `derive`."""

from __future__ import annotations

PROCESS_QUERIES: dict[str, str] = {
    # Servers of one cluster may share a process of the operating system, and its account.
    "process_io": """
        with spent as (
            select p.host, p.pid, any_value(p.process) filter (p.role = 'worker') as process,
                   string_agg(distinct p.role, ', ' order by p.role) as roles,
                   -- Of one sample alone nothing is known.
                   case when count(s.read_bytes) > 1
                        then max(s.read_bytes) - min(s.read_bytes) end as read_bytes,
                   case when count(s.write_bytes) > 1
                        then max(s.write_bytes) - min(s.write_bytes) end as write_bytes
            from process_samples s join processes p using (process)
            group by p.host, p.pid
        ), by_tasks as (
            select p.host, p.pid, sum(e.read_bytes)::bigint as read_bytes,
                   sum(e.write_bytes)::bigint as write_bytes,
                   -- What a library counts may be what the task's own thread has read.
                   sum(greatest(0, l.requested_bytes - coalesce(e.read_bytes, 0)))::bigint
                       as library_bytes
            from executions e join processes p using (process)
            left join (
                select process, execution, sum(requested_bytes) as requested_bytes
                from library_reads group by process, execution
            ) l using (process, execution)
            group by p.host, p.pid
        )
        select s.process, s.host, s.pid, s.roles, s.read_bytes, s.write_bytes,
               t.read_bytes as task_read_bytes, t.write_bytes as task_write_bytes,
               t.library_bytes as library_read_bytes,
               -- A process that was killed has had tasks since it was last looked at.
               case when s.read_bytes >= t.read_bytes then
                    greatest(0, s.read_bytes - t.read_bytes - coalesce(t.library_bytes, 0))
               end as unattributed_read_bytes,
               case when s.write_bytes >= t.write_bytes then s.write_bytes - t.write_bytes
               end as unattributed_write_bytes
        from spent s left join by_tasks t on t.host = s.host and t.pid = s.pid
        order by s.host, s.pid
    """,
}
