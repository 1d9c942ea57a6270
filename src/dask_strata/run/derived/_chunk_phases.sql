-- Seconds of building and processing the events of each chunk, and the range of its events.
-- depends on: _numbered_chunks, _seen_chunks, attempts
-- by key: _numbered_chunks, _seen_chunks, attempts
select c.chunk, sum(s.build_seconds) as build_seconds,
       sum(s.process_seconds) as process_seconds,
       -- A chunk that was claimed in steps takes its range from the seen chunk.
       case when count(distinct (s.first, s.last)) = 1 then any_value(s.first) end as first,
       case when count(distinct (s.first, s.last)) = 1 then any_value(s.last) end as last
from _numbered_chunks c join attempts a on a.attempt = c.attempt
join _seen_chunks s on s.process = a._process and s.execution = a._execution
 and (s.file = c.file or s.uri is null)
 and (c.first is null or s.first >= c.first and s.last <= c.last)
group by c.chunk
