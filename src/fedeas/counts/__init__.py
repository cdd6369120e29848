"""Tables of label counts in files: two doors.

- `strict`: the one form that every command reads and writes (`parquet`, `frames`: the same form in
  Parquet and in data frames); `doubts`: what is certainly no client and no class
- `people`: the tables that people have, for `fedeas counts`; `grids` opens their files, `cells`
  reads their numbers, `choices` keeps the options and what is unclear, `nvflare` its statistics
- `label_sets`: samples with several labels
- `named`: small files of a number per name
"""
