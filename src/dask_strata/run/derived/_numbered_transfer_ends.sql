-- Ends of transfers, numbered, with the addresses of both sides. `nth` counts the transfers of the
-- same keys between the same workers.
-- depends on: _imported_workers, transfer_end_keys, transfer_ends
with content as (
    select process, number,
           string_agg(key_type || chr(31) || key, chr(30) order by key_type, key) as content
    from transfer_end_keys group by process, number
)
select row_number() over (order by e.process, e.number, e."end") as id,
       e.process, e.number, e."end", e.start, e.stop,
       epoch_ns(e.start) as t0, epoch_ns(e.stop) as t1,
       coalesce(p.address, e.worker) as own_address,
       case when e."end" = 'incoming' then e.peer else own_address end as source,
       case when e."end" = 'incoming' then own_address else e.peer end as destination,
       e.total_bytes, e.compressed_bytes, e.n_keys, c.content,
       row_number() over (
           partition by e."end", source, destination, c.content
           order by e.start, e.process, e.number
       ) as nth,
       -- Clocks of imported runs were not measured: they may differ by more than aligned clocks do.
       case when e.file is null then 5000000000 else 60000000000 end as tolerance
from transfer_ends e
left join _imported_workers p on p.name = e.worker
left join content c on c.process = e.process and c.number = e.number
