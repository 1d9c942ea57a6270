-- Entries of logs: records of logging, warnings, and lines that workers wrote. A line that is the
-- printed form of a record is left out, and so are the lines that continue it. The form is unknown:
-- the text that a record starts with is the end of a line, behind a blank or a sign that may end a
-- prefix. A line pairs with a record of equal text before it that has none yet, within groups without
-- a pause of more than 5 s, so that a line that a task prints itself stays. Of long texts, which are
-- clipped at different places, 2,400 characters are compared.
-- depends on: log_records, output_lines, processes
with written as (
    select process, pid, min(time) as time from output_lines group by process, pid
), writers as (
    -- Process ids repeat: the recording that began next to the process's first line is its own.
    select w.process as nanny, w.pid, p.process, p.address, coalesce(p.name, n.name) as name, n.host
    from written w left join processes n on n.process = w.process
    left join processes p on p.role = 'worker' and p.pid = w.pid and p.host = n.host
    qualify row_number() over (partition by w.process, w.pid
        order by abs(epoch_ns(p.start) - epoch_ns(w.time))) = 1
), printed as (
    select o.process as nanny, o.pid, o.stream, o.seq, o.time, o.line, o.worker, w.process,
           w.address, w.name, w.host,
           row_number() over (partition by o.process, o.pid, o.stream order by o.seq) as position
    from output_lines o left join writers w
      on w.nanny = o.process and w.pid is not distinct from o.pid
), texts as (
    -- Texts are compared by length and hash: a line has up to 160 starts, each as long as the line.
    select process, seq, time, kind, least(length(lines[1]), 2400) as n,
           hash(left(lines[1], 2400)) as first,
           lines[2:] as others
    from (select process, seq, time, kind,
                 str_split(message || coalesce(chr(10) || exception, ''), chr(10)) as lines
          from log_records where process in (select process from writers))
    where lines[1] <> ''
), starts as (
    select nanny, seq, process, least(n - start + 1, 2400) as n, start
    from (select nanny, seq, process, length(line) as n, unnest([1] || list_filter(
               range(2, least(length(line), 160) + 1),
               lambda i: line[i - 1] in (' ', ':', ']', '|', ')', '>', 'm', chr(9)))) as start
          from printed where process in (select process from texts))
), candidates as (
    select s.nanny, s.seq, s.process, l.time, s.start, hash(substr(l.line, s.start, 2400)) as first
    from (from starts where (process, n) in (select process, n from texts)) s
    join printed l on l.nanny = s.nanny and l.seq = s.seq
), matched as (
    select nanny, seq, process, time, first from candidates
    where (process, first) in (select process, first from texts)
    qualify row_number() over (partition by nanny, seq order by start) = 1
), both_ as (
    -- Two clocks may be measured a little apart.
    select process, first, epoch_ns(time) - 2000000 as t, seq, null as nanny from texts
    union all by name select process, first, epoch_ns(time) as t, seq, nanny from matched
), pauses as (
    select *, t - lag(t) over (partition by process, first order by t, nanny is not null, seq)
                  > 5000000000 as after_pause
    from both_
), grouped as (
    -- DuckDB counts with a filter in quadratic time.
    select *, sum(case when after_pause then 1 else 0 end) over (
                  partition by process, first order by t, nanny is not null, seq
                  rows unbounded preceding) as nth_group
    from pauses
), summed as (
    -- Records so far that have no line yet; less than ever before for a line without a record.
    select *, sum(case when nanny is null then 1 else -1 end) over (
                  partition by process, first, nth_group order by t, nanny is not null, seq
                  rows unbounded preceding) as rest
    from grouped
), paired as (
    select * from summed
    qualify nanny is null or rest >= least(0, coalesce(min(rest) over (
                  partition by process, first, nth_group order by t, nanny is not null, seq
                  rows between unbounded preceding and 1 preceding), 0))
), ranked as (
    select *, row_number() over (
                  partition by process, first, nth_group, nanny is null order by t, seq) as nth
    from paired
), pairs as (
    select l.nanny, l.seq, r.process, r.seq as record from ranked l join ranked r
      on r.process = l.process and r.first = l.first and r.nth_group = l.nth_group
     and r.nth = l.nth and l.nanny is not null and r.nanny is null
), continued as (
    select nanny, pid, stream, kind, position + i as position, text
    from (select p.nanny, p.pid, p.stream, p.position, t.kind,
                 -- Behind a warning, Python prints its source line.
                 unnest(case t.kind when 'warning' then t.others || [null] else t.others end)
                     as text,
                 generate_subscripts(
                     case t.kind when 'warning' then t.others || [null] else t.others end, 1) as i
          from pairs a join printed p on p.nanny = a.nanny and p.seq = a.seq
          join texts t on t.process = a.process and t.seq = a.record)
), repeated as (
    select nanny, seq from pairs
    union
    select p.nanny, p.seq from continued c join printed p
      on p.nanny = c.nanny and p.pid is not distinct from c.pid and p.stream = c.stream
     and p.position = c.position
    where left(p.line, 2400) = left(c.text, 2400) or (c.text is null and starts_with(p.line, '  '))
), entries as (
    select l.time, l.process, p.role, l.worker, p.name, p.host, l.level, l.level_number, l.logger,
           l.kind as stream, l.message, l.exception, l._key, l.key, l.key_type, l.run_id,
           l.thread, l.process as recorder, l.seq
    from log_records l left join processes p on p.process = l.process
    union all by name
    select time, process, 'worker' as role, coalesce(worker, address) as worker, name, host, stream,
           line as message, nanny as recorder, seq
    from printed o
    where not exists (from repeated r where r.nanny = o.nanny and r.seq = o.seq)
)
select row_number() over (order by time, recorder, seq) as number, * exclude (recorder, seq)
from entries order by number
