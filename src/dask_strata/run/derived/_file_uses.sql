-- Files of tasks, one row for each file and range of a task: named by its definition (claimed),
-- opened by it (seen), or both, with the last attempt that opened it and the place where that ran.
-- depends on: _places, attempts, chunks, claimed_inputs, io_segments, task_inputs
-- by key: _places, attempts, chunks, claimed_inputs, task_inputs
with in_chunks as (
    select *, parse_filename(uri) as file,
           count(*) over (partition by key, key_type, uri) as n_of_uri,
           count(distinct uri) over (partition by key, key_type, parse_filename(uri)) as n_uris
    from chunks where uri is not null
), claims as (
    select *, count(distinct uri) over (partition by _key, parse_filename(uri)) as n_uris
    from task_inputs where kind = 'claimed' and uri is not null
), named as (
    select i._key, i.key, i.key_type, true as claimed, i.uri, i.mode, i.dataset, i.tree,
           -- A claim in steps has no entries; those of the only chunk of the file are the task's.
           case when c.key is null then i.first else c.first end as first,
           case when c.key is null then i.last else c.last end as last,
           case when c.first is null then i.unit else 'entries' end as unit,
           i.columns, i.nbytes, c.events, c.read_bytes, c.bytes_from
    from claims i left join in_chunks c
      on c.key = i.key and c.key_type = i.key_type
     -- A library may name the file by another path, of the same name.
     and (c.uri = i.uri or (c.n_uris = 1 and i.n_uris = 1 and c.file = parse_filename(i.uri)))
     and case when i.unit = 'entries' then c.first = i.first and c.last = i.last
              else c.n_of_uri = 1 end
), opened as (
    select _key, any_value(key) as key, any_value(key_type) as key_type, uri,
           max(attempt) as attempt,
           case when count(distinct mode) = 1 then any_value(mode) else 'update' end as mode
    from task_inputs where kind = 'seen' and uri is not null group by _key, uri
), unnamed as (
    select o._key, o.key, o.key_type, o.uri, o.mode, o.attempt, c.dataset, c.tree, c.first,
           c.last, case when c.first is not null then 'entries' end as unit,
           c.events, c.read_bytes, c.bytes_from
    from opened o anti join named n on n._key = o._key and n.uri = o.uri
    left join in_chunks c on c.key = o.key and c.key_type = o.key_type and c.uri = o.uri
), used as (
    select n.* exclude (mode), o._key is not null as seen, o.attempt,
           -- A definition names a path without its use, which opening it shows.
           coalesce(o.mode, n.mode) as mode
    from named n left join opened o on o._key = n._key and o.uri = n.uri
    union all by name
    select *, false as claimed, true as seen from unnamed
), counted as (
    select *, count(*) over (partition by _key, uri) as n_parts from used
), last_attempts as (
    select _key, max(attempt) as attempt from attempts group by _key
), traced as (
    select attempt, uri, sum(length_bytes) filter (operation = 'read')::bigint as read_bytes
    from io_segments where attempt is not null and module = 'DXT_POSIX' group by attempt, uri
), of_threads as (
    -- The bytes of a thread belong to the only file that it opened, unless threads of a library read
    -- it as well, as pyarrow's do. Up to 64 KiB of other threads are Dask's own samples.
    select attempt, read_bytes from attempts
    where n_opened = 1 and library_bytes is null and elsewhere is null
      and (coalesce(other_read_bytes, 0) <= greatest(65536, read_bytes / 10))
      and (other_read_bytes is not null or _key not in (
          select _key from claimed_inputs where extractor like '%parquet%'))
)
select u._key, u.key, u.key_type, u.uri, u.mode, u.claimed, u.seen, u.dataset, u.tree, u.first,
       u.last, u.unit, u.columns, u.nbytes, u.events,
       coalesce(u.read_bytes, t.read_bytes, o.read_bytes)::bigint as read_bytes,
       case when u.read_bytes is not null then u.bytes_from
            when t.read_bytes is not null then 'darshan'
            when o.read_bytes is not null then 'thread' end as bytes_from,
       a.attempt, a.worker, a.thread, p.process, p.host, p.pid
from counted u
left join last_attempts l on l._key = u._key
left join attempts a on a.attempt = coalesce(u.attempt, l.attempt)
left join _places p on p.attempt = a.attempt
-- The bytes of a file are not those of each of its parts.
left join traced t on t.attempt = a.attempt and t.uri = u.uri and u.n_parts = 1
left join of_threads o on o.attempt = u.attempt and u.mode = 'read' and u.n_parts = 1
