-- Graphs that the scheduler received, with their lines of code and as the users wrote them.
-- depends on: client_graphs, client_submissions, graph_tasks, submissions
with requested as (
    select submission, _key from graph_tasks where requested
),
sent as (
    -- A client records one of the requested keys. It can request the same key several times: the
    -- submission that is nearest in time counts.
    select s.submission, c.client, c._first_key, c.time
    from submissions s
    join requested r using (submission)
    join client_submissions c on c.client = s.client and c._first_key = r._key
    qualify row_number() over (
        partition by s.submission order by abs(epoch_ns(c.time) - epoch_ns(s.time)), c.time
    ) = 1
)
select s.submission, s.time, s.client, c.file, c.line, c.function, c.code, c.cell, c.cell_code,
       c.collection, g.expression, g.sent_expression, g.n_layers,
       g.n_tasks as n_tasks_written, s.n_tasks as n_tasks_received
from submissions s
left join sent using (submission)
left join client_submissions c
  on c.client = sent.client and c._first_key = sent._first_key and c.time = sent.time
left join client_graphs g
  on g.client = sent.client and g._first_key = sent._first_key and g.time = sent.time
order by s.time, s.submission
