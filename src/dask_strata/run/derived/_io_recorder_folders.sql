-- Folders of the run as Darshan names them: those with a segment that has the name of a process.
-- depends on: darshan_segments, processes
select distinct regexp_extract(s.uri, '^(.*/)segments/[^/]+[.]seg$', 1) as folder
from (select distinct uri from darshan_segments where uri like '%/segments/%.seg') s
join (select distinct process from processes) p
  on p.process = regexp_extract(s.uri, '/segments/([^/]+)[.]seg$', 1)
