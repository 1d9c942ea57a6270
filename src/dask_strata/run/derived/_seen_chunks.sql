-- Chunks that tasks were seen to make into events, and whether a definition claims them.
-- Both may write the path of a file in different ways: names of files are compared.
-- depends on: _claimed_chunks, seen_chunks
-- by key: _claimed_chunks, seen_chunks
select s.*, parse_filename(s.uri) as file, exists (
           from _claimed_chunks c
           where c.key = s.key and c.key_type = s.key_type
             and (s.uri is null or c.file = parse_filename(s.uri))
             and (c.first is null or s.first >= c.first and s.last <= c.last)
       ) as claimed
from seen_chunks s
