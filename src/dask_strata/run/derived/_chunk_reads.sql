-- Bytes, requests and seconds that libraries spent on reading each chunk, if the chunk is the
-- only one of its file in the task.
-- depends on: _numbered_chunks, attempts, library_reads
-- by key: _numbered_chunks, attempts, library_reads
select c.chunk, sum(r.requested_bytes) as requested_bytes,
       sum(r.requests) as requests, sum(r.open_seconds) as open_seconds
from _numbered_chunks c join attempts a on a.attempt = c.attempt
join library_reads r on r.process = a._process and r.execution = a._execution
 and (parse_filename(r.uri) = c.file or c.file is null)
where c.n_of_file = 1 group by c.chunk
