-- The number of tasks that need the result of each key.
-- depends on: graph_edges
select _dependency as _key, count(distinct _key) as n from graph_edges group by _dependency
