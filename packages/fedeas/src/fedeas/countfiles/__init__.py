"""Tables of label counts in files.

- `strict`: the one form that every command reads and writes (`parquet`, `frames`: the same form in
  Parquet and in data frames); `doubts`: what such a table certainly does not hold
- `people`: the tables that people have, for `fedeas counts` (`nvflare`: its federated statistics)
- `label_sets`: samples with several labels
- `named`: small files of a number per name
"""
