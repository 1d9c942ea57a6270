-- Bytes and seconds of traced reads and writes by attempt. Only POSIX counts: operations of
-- DXT_MPIIO are traced again as POSIX operations.
-- depends on: _io_executions, darshan_logs, io_segments
with traced as (
    select attempt,
           coalesce(sum(length_bytes) filter (operation = 'read'), 0) as read_bytes,
           coalesce(sum(length_bytes) filter (operation = 'write'), 0) as write_bytes,
           sum(seconds) as seconds, count(*) as n_segments
    from io_segments where attempt is not null and module = 'DXT_POSIX' group by attempt
)
select a.attempt, coalesce(t.read_bytes, 0)::bigint as read_bytes,
       coalesce(t.write_bytes, 0)::bigint as write_bytes,
       coalesce(t.seconds, 0) as seconds, coalesce(t.n_segments, 0) as n_segments
from (select distinct r.attempt from _io_executions r join darshan_logs l on l.log = r.log
      where l.n_segments is not null) a
left join traced t on t.attempt = a.attempt
