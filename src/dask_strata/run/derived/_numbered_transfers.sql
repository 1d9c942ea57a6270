-- Transfers, from both ends or the one that is recorded, numbered by their start.
-- depends on: _matched_transfer_ends, _numbered_transfer_ends
select row_number() over (
           order by coalesce(i.start, o.start), coalesce(i.process, o.process),
                    coalesce(i.number, o.number)
       ) as transfer,
       coalesce(i.start, o.start) as start, coalesce(i.stop, o.stop) as stop,
       coalesce(i.source, o.source) as source,
       coalesce(i.destination, o.destination) as destination,
       coalesce(o.total_bytes, i.total_bytes) as total_bytes, o.compressed_bytes,
       case when i.id is null then 'source' when o.id is null then 'destination'
            else 'both' end as seen_by,
       coalesce(i.n_keys, o.n_keys) as n_keys,
       coalesce(i.process, o.process) as process,
       coalesce(i.number, o.number) as number
from (select e.*, m.outgoing from _numbered_transfer_ends e
      left join _matched_transfer_ends m on m.incoming = e.id
      where e."end" = 'incoming') i
full outer join (select * from _numbered_transfer_ends where "end" = 'outgoing') o
  on o.id = i.outgoing
