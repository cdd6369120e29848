"""Tables as people have them, with the mistakes that people make: none is read wrongly in silence.

A table is read as it is, or refused. Every refusal names what to type; typed word by word it leads
to the right counts, to the next refusal, or the table has to be corrected first.
"""

import contextlib
import datetime
import io
import json
import random
import shlex
import sys
import time
import types
from collections import Counter
from dataclasses import dataclass

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pytest

from fedeas import FedEAS, InputError, LabelCounts
from fedeas.cli.label_counts import typed_options
from fedeas.data.count_sources import read_counts

THREE = "Klinik;Pneumonie;COVID;Normal\nA;120;30;500\nB;10;300;20\nC;55;0;90\n"
WIDE = "site,pneumonia,covid,normal\nA,120,30,500\nB,10,300,20\nC,55,0,90\n"
TWO = "site,pneumonia,covid\nA,120,30\nB,10,300\n"


def counts(text: str) -> LabelCounts:
    """Counts from a plain table, for comparison."""
    head, *rows = (line.split(",") for line in text.replace(";", ",").splitlines())
    return LabelCounts([[int(n) for n in row[1:]] for row in rows], [r[0] for r in rows], head[1:])


def counted(pairs: list[tuple[str, str]]) -> LabelCounts:
    """Counts of pairs of client and label."""
    number = Counter(pairs)
    clients, labels = (sorted({pair[at] for pair in pairs}) for at in (0, 1))
    return LabelCounts([[number[k, c] for c in labels] for k in clients], clients, labels)


def book(*rows, hide_row=None, hide_column=None, percent=False, sheets=None, merge=()) -> bytes:
    """A workbook, with what people do to sheets."""
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    for row in rows:
        sheet.append(row)
    if hide_row:
        sheet.row_dimensions[hide_row].hidden = True
    if hide_column:
        sheet.column_dimensions[hide_column].hidden = True
    for cells in merge:
        sheet.merge_cells(cells)
    if percent:
        for row in sheet.iter_rows(min_row=2, min_col=2):
            for cell in row:
                cell.number_format = "0%"
    for name, (state, more) in (sheets or {}).items():
        other = workbook.create_sheet(name)
        other.sheet_state = state
        for row in more:
            other.append(row)
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


@dataclass
class Case:
    """A table, and what the advice in its refusals leads to."""

    content: str | bytes
    counts: LabelCounts | None = None  # None: the table has to be corrected
    says: str = ""  # in one of the refusals
    corrected: str = ""  # the table as a refusal asks for
    clean: bool = False  # read as it is
    name: str = "table.csv"


def samples(labels: tuple[str, ...], clients: str = "ABC", number: int = 60):
    """Clients and labels of some samples."""
    draw = random.Random(1)
    return [(draw.choice(clients), draw.choice(labels)) for _ in range(number)]


D = ("covid", "normal", "pneumonia", "tb")
PAIRS = samples(D)
SECOND = samples(D[::-1])
KINDS = ("Atelectasis", "Edema", "No Finding")
SHOTS = samples(KINDS, number=90)
LISTS = samples(("Edema", "Effusion", "Edema|Effusion", "Mass", "Effusion|Mass"))
SINGLES = [(client, label) for client, cell in LISTS for label in cell.split("|")]
HOT = [",".join(str(int(label == kind)) for kind in KINDS) for _, label in SHOTS]
KLINIK = ["Klinik", "Pneumonie", "COVID"]
PERCENT = "site,pneumonia,covid,normal\nA,12%,3%,85%\nB,4%,90%,6%\nC,38%,0%,62%\n"
SIZED = "site,pneumonia,covid,normal,n\nA,12,3,85,100\nB,4,90,6,200\nC,38,0,62,100\n"
SHARED = counts("site,pneumonia,covid,normal\nA,12,3,85\nB,8,180,12\nC,38,0,62\n")


def lines(head: str, rows) -> str:
    return "\n".join([head, *rows]) + "\n"


CASES = {
    # Totals, subtotals, means
    "German, a total": Case(
        "Klinik;Pneumonie;COVID-19;Normal\r\nCharité;1.240;860;12.400\r\nKöln;980;0;8.300\r\n"
        "LMU;120;2.310;410\r\nSumme;2.340;3.170;21.110\r\n".encode("cp1252"),
        counts=counts(
            "Klinik,Pneumonie,COVID-19,Normal\nCharité,1240,860,12400\nKöln,980,0,8300\n"
            "LMU,120,2310,410\n"
        ),
    ),
    "two totals": Case(
        "Klinik;P;C;Gesamt\nA;120;30;150\nB;10;300;310\nC;55;0;55\nInsgesamt;185;330;515\n",
        counts=counts("Klinik,P,C\nA,120,30\nB,10,300\nC,55,0\n"),
    ),
    "a total that is one off": Case(THREE + "Alle Häuser;185;331;610\n", counts=counts(THREE)),
    "a total that is one off, under another name": Case(
        THREE + "Verbund;185;331;610\n", counts=counts(THREE)
    ),
    "cases, one off": Case(
        "site,pneumonia,covid,cases\nA,120,30,150\nB,10,300,310\nC,50,50,101\n",
        counts=counts("site,pneumonia,covid\nA,120,30\nB,10,300\nC,50,50\n"),
    ),
    "a mean": Case(WIDE + "Mean,61,110,203\n", counts=counts(WIDE)),
    "an average": Case(WIDE + "Average,62,110,203\n", counts=counts(WIDE)),
    "a mean and SD": Case(WIDE + "Mean,61,110,203\nSD,55,165,260\n", counts=counts(WIDE)),
    "subtotals": Case(
        TWO + "Subtotal Nord,130,330\nC,50,50\nD,5,9\nSubtotal Süd,55,59\n",
        counts=counts(TWO + "C,50,50\nD,5,9\n"),
    ),
    "a subtotal": Case(TWO + "Subtotal,130,330\nC,50,50\n", counts=counts(TWO + "C,50,50\n")),
    "Zwischensumme": Case(
        TWO + "Zwischensumme,130,330\nC,50,50\nD,7,90\n",
        counts=counts(TWO + "C,50,50\nD,7,90\n"),
    ),
    "a subtotal under another name": Case(
        TWO + "Nord,130,330\nC,50,50\nD,7,90\n",
        counts=counts(TWO + "C,50,50\nD,7,90\n"),
    ),
    "a total of some": Case(TWO + "Total (excl. B),120,30\n", counts=counts(TWO)),
    "the sum of two classes": Case(
        "site,viral,bacterial,pneumonia,normal\nA,20,30,50,100\nB,10,5,15,3\nC,7,8,15,99\n",
        counts=counts("site,viral,bacterial,normal\nA,20,30,100\nB,10,5,3\nC,7,8,99\n"),
    ),
    "the sum of both": Case(
        "site,pneumonia,covid,Sum of both\nA,120,30,150\nB,10,300,310\n",
        counts=counts(TWO),
    ),
    # Percentages
    "percentages": Case(PERCENT, says="sizes='n'", corrected=SIZED, counts=SHARED),
    "percentages and N": Case(
        "site,N,pneumonia,covid,normal\nA,1200,12.5 %,2.5 %,85 %\nB,800,4 %,90 %,6 %\n",
        counts=counts("site,pneumonia,covid,normal\nA,150,30,1020\nB,32,720,48\n"),
    ),
    "percentages without a sign": Case(
        PERCENT.replace("%", ""), says="sizes='n'", corrected=SIZED, counts=SHARED
    ),
    "German percentages": Case("Klinik;P;C;N\nA;12,5;2,5;85\nB;4;90;6\n", says="sizes="),
    # Cells
    "blank cells": Case(
        "site,pneumonia,covid\nA,120,\nB,10,300\n",
        counts=counts("site,pneumonia,covid\nA,120,0\nB,10,300\n"),
    ),
    "n<5": Case(
        "site,pneumonia,covid,normal\nA,120,n<5,500\nB,10,300,<5\nC,55,≤4,90\n",
        counts=counts("site,pneumonia,covid,normal\nA,120,2,500\nB,10,300,2\nC,55,2,90\n"),
    ),
    "a negative number": Case("site,p,c\nA,120,-3\nB,10,300\n", says="'-3' is not one"),
    "-999": Case("site,p,c\nA,120,-999\nB,10,300\n", says="'-999' is not one"),
    "NaN": Case(
        "site,pneumonia,covid\nA,120,NaN\nB,10,#N/A\n",
        counts=counts("site,pneumonia,covid\nA,120,0\nB,10,0\n"),
    ),
    "9999": Case(
        "site,pneumonia,covid,normal\nA,120,9999,500\nB,10,300,9999\nC,44,9999,21\n",
        says="write 0 in such cells",
        corrected="site,pneumonia,covid,normal\nA,120,0,500\nB,10,300,0\nC,44,0,21\n",
        counts=counts("site,pneumonia,covid,normal\nA,120,0,500\nB,10,300,0\nC,44,0,21\n"),
    ),
    "narrow spaces": Case(
        "site;pneumonia;covid\nA;1\u202f240;30\nB;10;12\u202f300\n",
        counts=counts("site,pneumonia,covid\nA,1240,30\nB,10,12300\n"),
    ),
    "two separators": Case("site;p;c\nA;1.240;30\nB;10;12,300\n", says="written in two ways"),
    "decimals": Case("Klinik;p;c\nA;1.5;2.25\nB;10;12\n", says="got '1.5'"),
    "1.2k": Case(
        "site,pneumonia,covid\nA,1.2k,30\nB,10,12k\n",
        says="write 1200",
        corrected="site,pneumonia,covid\nA,1200,30\nB,10,12000\n",
        counts=counts("site,pneumonia,covid\nA,1200,30\nB,10,12000\n"),
    ),
    "1.234": Case(
        "Klinik;p;c\nA;1.234;2.345\nB;1.111;9.876\n",
        counts=counts("Klinik,p,c\nA,1234,2345\nB,1111,9876\n"),
    ),
    "a class N/A": Case(
        "site,pneumonia,N/A\nA,120,500\nB,10,20\n",
        counts=counts("site,pneumonia,N/A\nA,120,500\nB,10,20\n"),
        clean=True,
    ),
    # Headings
    "a title": Case("Report 2024,,,\n,Findings,,\n" + WIDE, counts=counts(WIDE)),
    "two rows of headings": Case(
        "site,2023,,2024,\n,pneumonia,normal,pneumonia,normal\nA,120,30,50,22\nB,10,300,20,12\n",
        says="two rows of headings",
        corrected="site,pneumonia 23,normal 23\nA,120,30\nB,10,300\n",
        counts=counts("site,pneumonia 23,normal 23\nA,120,30\nB,10,300\n"),
    ),
    "no heading": Case(
        "A,120,30,500\nB,10,300,20\n",
        says="has no heading",
        corrected="client,a,b,c\nA,120,30,500\nB,10,300,20\n",
        counts=counts("client,a,b,c\nA,120,30,500\nB,10,300,20\n"),
    ),
    "notes below": Case(
        TWO + "\nSource: KIS export 2024-05-01\n* preliminary\n",
        counts=counts(TWO),
    ),
    "a note with a comma": Case(
        TWO.replace("covid", "covid,flu").replace("30\n", "30,1\n").replace("300\n", "300,2\n")
        + "Source: KIS, 2024\n",
        counts=counts("site,pneumonia,covid,flu\nA,120,30,1\nB,10,300,2\n"),
    ),
    # A row is not a client
    "long with counts": Case(
        "Hospital,Diagnosis,Patients\nA,pneumonia,120\nA,covid,30\nB,normal,50\nB,covid,400\n",
        counts=counts("x,covid,normal,pneumonia\nA,30,0,120\nB,400,50,0\n"),
    ),
    "long with counts by year": Case(
        "Hospital,Diagnosis,Year,Patients\nA,flu,2023,120\nA,flu,2024,100\nA,covid,2023,30\n"
        "B,covid,2024,400\n",
        counts=counts("x,covid,flu\nA,30,220\nB,400,0\n"),
    ),
    "long with counts of men, women and all": Case(
        "Hospital,Diagnosis,Sex,Patients\nA,flu,m,120\nA,flu,f,100\nA,flu,all,220\nB,covid,f,40\n",
        says="rows with all in column Sex",
    ),
    "merged cells of clients": Case(
        book(
            ["Klinik", "Diagnose", "Anzahl"],
            ["A", "flu", 30],
            [None, "COVID", 12],
            ["B", "flu", 3],
            [None, "COVID", 200],
            merge=["A2:A3", "A4:A5"],
        ),
        says="row 3 lacks a client",
        name="table.xlsx",
    ),
    "patients with two diagnoses": Case(
        lines(
            "patient_id,site,date,admission_diagnosis,discharge_diagnosis,age",
            (
                f"P{i:04},{site},2024-01-0{i % 9 + 1},{a},{b},{20 + i}"
                for i, ((site, a), (_, b)) in enumerate(zip(PAIRS, SECOND, strict=True))
            ),
        ),
        counts=counted(PAIRS),
    ),
    "several labels in a cell": Case(
        lines("patient,hospital,findings", (f"{i},{k},{c}" for i, (k, c) in enumerate(LISTS))),
        says="are lists of others",
        corrected=lines("hospital,findings", (f"{k},{c}" for k, c in SINGLES)),
        counts=counted(SINGLES),
    ),
    "several labels in a cell, with commas": Case(
        lines(
            "patient,hospital,findings",
            (f'{i},{k},"{c.replace("|", ", ")}"' for i, (k, c) in enumerate(LISTS)),
        ),
        says="are lists of others",
    ),
    "several labels in a cell, as Python writes them": Case(
        lines("hospital,label", (f'{k},"{c.split("|")}"' for k, c in LISTS)),
        says="are lists of others",
        corrected=lines("hospital,label", (f"{k},{c}" for k, c in SINGLES)),
        counts=counted(SINGLES),
    ),
    "patients in several rows": Case(
        lines(
            "patient_id,hospital,diagnosis", (f"{i // 2},{k},{c}" for i, (k, c) in enumerate(PAIRS))
        ),
        counts=counted(PAIRS),
    ),
    "patients by a German number": Case(
        lines(
            "FallNr;Haus;Hauptdiagnose",
            (f"{10000 + i};Haus {k};{c}" for i, (k, c) in enumerate(PAIRS)),
        ),
        counts=counted([(f"Haus {k}", c) for k, c in PAIRS]),
    ),
    "patients in a workbook": Case(
        book(
            ["Patient", "Datum", "Klinik", "Diagnose"],
            *([1000 + i, datetime.datetime(2024, 1, 3), k, c] for i, (k, c) in enumerate(PAIRS)),
        ),
        counts=counted(PAIRS),
        name="table.xlsx",
    ),
    "samples with dates": Case(
        lines(
            "date,site,label", (f"{i % 28 + 1}.3.2024,{k},{c}" for i, (k, c) in enumerate(PAIRS))
        ),
        counts=counted(PAIRS),
    ),
    "samples with numbers": Case(
        lines(
            "label,image_id,hospital_id",
            (f"{D.index(c)},{i},{'ABC'.index(k)}" for i, (k, c) in enumerate(PAIRS)),
        ),
        counts=counted([(str("ABC".index(k)), str(D.index(c))) for k, c in PAIRS]),
    ),
    "samples with a sex": Case(
        lines("hospital,sex,label", (f"{k},{'mf'[i % 2]},{c}" for i, (k, c) in enumerate(PAIRS))),
        counts=counted(PAIRS),
    ),
    "samples in three spellings": Case(
        "hospital,diagnosis\nNorth,Covid\nnorth,covid\nNorth ,COVID\nSouth,covid\nSouth,flu\n",
        says="differ in their spelling",
        corrected="hospital,diagnosis\nNorth,covid\nNorth,covid\nNorth,covid\nSouth,covid\nSouth,flu\n",
        counts=counts("x,covid,flu\nNorth,3,0\nSouth,1,1\n"),
    ),
    "unlabelled samples": Case(
        lines("site,label", (f"{k},{D.index(c) - 1}" for k, c in PAIRS)),
        counts=counted([(k, str(D.index(c) - 1)) for k, c in PAIRS if c != D[0]]),
    ),
    "samples whose label is NaN": Case(
        lines("site,label", (f"{k},{'nan' if c == 'tb' else c}" for k, c in PAIRS)),
        counts=counted([(k, c) for k, c in PAIRS if c != "tb"]),
    ),
    # A column per finding, 0 or 1
    "one-hot, an image in front": Case(
        lines(
            "image,site,Atelectasis,Edema,No Finding",
            (
                f"img{i}.png,{k},{hot}"
                for i, ((k, _), hot) in enumerate(zip(SHOTS, HOT, strict=True))
            ),
        ),
        counts=counted(SHOTS),
    ),
    "one-hot": Case(
        lines(
            "site,Atelectasis,Edema,No Finding",
            (f"{k},{hot}" for (k, _), hot in zip(SHOTS, HOT, strict=True)),
        ),
        counts=counted(SHOTS),
    ),
    "one-hot, a path in front": Case(
        lines(
            "Path,Atelectasis,Edema,No Finding",
            (
                f"site{k}/img{i}.png,{hot}"
                for i, ((k, _), hot) in enumerate(zip(SHOTS, HOT, strict=True))
            ),
        ),
        says="add_up=True",
        corrected=lines(
            "site,Atelectasis,Edema,No Finding",
            (f"{k},{hot}" for (k, _), hot in zip(SHOTS, HOT, strict=True)),
        ),
        counts=counted(SHOTS),
    ),
    "CheXpert": Case(
        "Image,Edema,Mass,Hospital\ni0,1.0,0.0,A\ni1,-1.0,1.0,A\ni2,0.0,1.0,B\n",
        says="'-1.0' is not one",
    ),
    "counts by month and site": Case(
        "date,site,p,c\n2024-01-01,A,12,3\n2024-01-01,B,1,30\n2024-02-01,A,10,0\n2024-02-01,B,2,28\n",
        counts=counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "a site twice": Case(
        TWO + "A,15,3\n",
        counts=counts("site,pneumonia,covid\nA,135,33\nB,10,300\n"),
    ),
    "a site twice, with spaces": Case(
        TWO + " A ,15,3\n",
        counts=counts("site,pneumonia,covid\nA,135,33\nB,10,300\n"),
    ),
    "counts by month and site, the month a number": Case(
        "site,month,p,c\nA,1,12,3\nB,1,1,30\nA,2,10,0\nB,2,2,28\n",
        counts=counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by week": Case(
        "site,KW,p,c\nA,14,12,3\nA,15,10,0\nB,14,1,30\nB,17,2,28\n",
        counts=counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by year": Case(
        "site,Berichtszeitraum,p,c\nA,2023,12,3\nA,2024,10,0\nB,2023,1,30\nB,2024,2,28\n",
        counts=counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by fold": Case(
        "site,fold,p,c\nA,1,12,3\nA,2,10,0\nB,1,1,30\nB,2,2,28\n",
        counts=counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by month and a total": Case(
        "site,p,c\nA,12,3\nA,10,0\nB,1,30\nAll sites,25,99\n",
        counts=counts("site,p,c\nA,22,3\nB,1,30\n"),
    ),
    "label sets and how many images have them": Case(
        "site,Edema,Mass,images\nA,0,1,120\nA,1,0,30\nB,1,1,44\n",
        says="column images is called a number of samples",
    ),
    "an institution's number in front": Case(
        "IK-Nummer;Klinik;Grippe;Covid\n260500139;Mitte;120;30\n260100023;Nord;10;300\n",
        counts=counts("x,Grippe,Covid\nMitte,120,30\nNord,10,300\n"),
    ),
    "a rank in front": Case(
        "Rang;Klinik;Grippe;Covid\n1;Mitte;120;30\n2;Nord;10;300\n",
        counts=counts("x,Grippe,Covid\nMitte,120,30\nNord,10,300\n"),
    ),
    "one-hot, the client last": Case(
        lines(
            "Atelectasis,Edema,No Finding,site",
            (f"{hot},{k}" for (k, _), hot in zip(SHOTS, HOT, strict=True)),
        ),
        counts=counted(SHOTS),
    ),
    "regions": Case(
        "region,site,pneumonia,covid\nNord,A,120,30\n,B,10,300\nSüd,C,50,50\n,D,5,9\n",
        counts=counts(TWO + "C,50,50\nD,5,9\n"),
    ),
    # Rows and columns that are no clients or classes
    "months as rows": Case("Month,p,c\nJan,12,3\nFeb,1,30\nMar,10,0\n", says="times"),
    "months as columns": Case("Klinik,Jan 24,Feb 24,Mrz 24\nA,12,3,50\nB,1,30,2\n", says="times"),
    "beds": Case(
        "site,beds,J18,U07\nA,1200,120,30\nB,300,10,300\n",
        counts=counts("site,J18,U07\nA,120,30\nB,10,300\n"),
    ),
    "a city": Case(
        "site,city,pneumonia,covid\nA,Berlin,120,30\nB,Köln,10,300\n",
        counts=counts(TWO),
    ),
    "zip": Case(
        "site,zip,pneumonia,covid\nA,10117,120,30\nB,50937,10,300\n",
        counts=counts(TWO),
    ),
    "latitudes": Case(
        "site,lat,lon,pneumonia,covid\nA,52.5,13.4,120,30\nB,50.9,6.9,10,300\n",
        counts=counts(TWO),
    ),
    "mean_age": Case(
        "site,mean_age,pneumonia,covid\nA,62,120,30\nB,48,10,300\n",
        counts=counts(TWO),
    ),
    "n_patients": Case(
        "site,n_patients,pneumonia,covid\nA,200,120,30\nB,400,10,300\n",
        counts=counts(TWO),
    ),
    "percent in a heading, with numbers": Case(
        "site,n flu,% flu,n cold,% cold\nA,120,80,30,20\nB,10,3,300,97\n",
        counts=counts("site,n flu,n cold\nA,120,30\nB,10,300\n"),
    ),
    "standard deviations": Case(
        "site,pneumonia,covid,pneumonia_std,covid_sd\nA,120,30,11,5\nB,10,300,2,17\n",
        counts=counts(TWO),
    ),
    "a number of each row": Case(
        "site,pneumonia,covid,lfd\nA,120,30,1\nB,10,300,2\nC,5,6,3\n",
        counts=counts(TWO + "C,5,6\n"),
    ),
    "classes by quarter": Case(
        "site,Q1 flu,Q2 flu,Q1 cold,Q2 cold\nA,120,30,11,2\nB,10,3,44,5\n",
        says="classes Q1 flu, Q2 flu differ in a time",
    ),
    "classes by split": Case(
        "site,flu_train,flu_test,cold_train,cold_test\nA,120,30,11,2\nB,10,3,44,5\n",
        counts=counts("site,flu_train,flu_test,cold_train,cold_test\nA,120,30,11,2\nB,10,3,44,5\n"),
    ),
    "clients by year": Case(
        "site,flu,cold\nA 2023,120,30\nA 2024,10,300\nB 2023,14,34\nB 2024,15,30\n",
        says="clients A 2023, A 2024 differ in a time",
    ),
    "cars of some years": Case(
        "site,S4 Sedan 2007,S4 Sedan 2012,Z4 2012\nA,120,30,11\nB,10,3,44\n",
        counts=counts("site,S4 Sedan 2007,S4 Sedan 2012,Z4 2012\nA,120,30,11\nB,10,3,44\n"),
        clean=True,
    ),
    "a French total, not the sum": Case(
        "Hôpital;p;c\nLyon;120;30\nParis;10;300\nEnsemble;170;435\n",
        counts=counts("x,p,c\nLyon,120,30\nParis,10,300\n"),
    ),
    "a total without a name": Case(TWO + ",130,330\n", counts=counts(TWO)),
    "commas at the end of lines": Case(TWO.replace("\n", ",\n"), counts=counts(TWO)),
    "labels -1 and 1": Case(
        lines("site,label", (f"{k},{2 * (c == D[0]) - 1}" for k, c in PAIRS)),
        counts=counted([(k, str(2 * (c == D[0]) - 1)) for k, c in PAIRS]),
    ),
    "men and women": Case(
        "site,male,female,pneumonia,covid\nA,90,70,120,30\nB,200,140,10,300\n",
        counts=counts(TWO),
    ),
    "men and women are the classes": Case(
        "site,male,female,unknown\nA,90,70,3\nB,200,140,0\n",
        counts=counts("site,male,female,unknown\nA,90,70,3\nB,200,140,0\n"),
        clean=True,
    ),
    "phones are a class": Case(
        "site,phone,mug\nA,90,70\nB,200,140\n",
        counts=counts("site,phone,mug\nA,90,70\nB,200,140\n"),
        clean=True,
    ),
    "writers w1, w2": Case(
        "client,cat,dog\nw1,90,70\nw2,200,140\n",
        counts=counts("client,cat,dog\nw1,90,70\nw2,200,140\n"),
        clean=True,
    ),
    "rows are diagnoses": Case(
        "Diagnosis,North,South\npneumonia,120,30\ncovid,10,300\n",
        counts=counts("x,pneumonia,covid\nNorth,120,10\nSouth,30,300\n"),
    ),
    "rows are diagnoses, without a heading": Case(
        ",Charité,Köln\npneumonia,120,30\ncovid,10,300\n",
        counts=counts("x,pneumonia,covid\nCharité,120,10\nKöln,30,300\n"),
    ),
    "rows are diagnoses, in German": Case(
        "Krankheit,Charité,Köln\nPneumonie,120,30\nCOVID,10,300\n",
        counts=counts("x,Pneumonie,COVID\nCharité,120,10\nKöln,30,300\n"),
    ),
    # Encodings
    "UTF-16": Case(
        "Klinik\tp\tc\nCharité\t120\t30\nKöln\t10\t300\n".encode("utf-16"),
        counts=counts("x,p,c\nCharité,120,30\nKöln,10,300\n"),
    ),
    "UTF-16 without a mark": Case(
        "Klinik\tp\tc\nCharité\t120\t30\nKöln\t10\t300\n".encode("utf-16-le"),
        counts=counts("x,p,c\nCharité,120,30\nKöln,10,300\n"),
    ),
    # Workbooks
    "two sheets": Case(
        book(
            KLINIK,
            ["A", 120, 30],
            ["B", 10, 300],
            sheets={"2024": ("visible", [KLINIK, ["A", 220, 30], ["B", 10, 400]])},
        ),
        counts=counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "a hidden sheet": Case(
        book(KLINIK, ["A", 120, 30], ["B", 10, 300], sheets={"lookup": ("hidden", [["x", 1]])}),
        counts=counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "a hidden row": Case(
        book(KLINIK, ["A", "120", "30"], ["B", 10, 300], ["C", 44, 1], hide_row=4),
        counts=counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "a hidden column": Case(
        book(
            [*KLINIK, "alt"],
            ["A", 120, 30, 99],
            ["B", 10, 300, 3],
            ["C", 44, 1, 8],
            hide_column="D",
        ),
        counts=counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\nC,44,1\n"),
        name="table.xlsx",
    ),
    "hidden rows of patients": Case(
        book(["Klinik", "label"], *map(list, PAIRS), hide_row=5),
        says="1 rows are hidden",
        name="table.xlsx",
    ),
    "percent formats": Case(
        book(KLINIK, ["A", 0.12, 0.88], ["B", 0.04, 0.96], percent=True),
        says="sizes='n'",
        name="table.xlsx",
    ),
    "percent formats of 0 and 1": Case(
        book(KLINIK, ["A", 1, 0], ["B", 0, 1], percent=True),
        says="sizes='n'",
        name="table.xlsx",
    ),
    "two tables in a sheet": Case(
        book(
            KLINIK, ["A", 120, 30], ["B", 10, 300], [None], ["Klinik", "Flu", "Cold"], ["A", 1, 2]
        ),
        says="a second one",
        name="table.xlsx",
    ),
    "a formula without a value": Case(
        book([*KLINIK, "Summe"], ["A", 120, 30, "=B2+C2"]), says="save it", name="table.xlsx"
    ),
    "a date for 1-4": Case(
        book(KLINIK, ["A", 120, datetime.datetime(2024, 1, 4)], ["B", 10, 300]),
        says="write the count",
        name="table.xlsx",
    ),
    "two rows of headings in a workbook": Case(
        book(
            ["Klinik", "Lunge", None, "Herz", None],
            [None, "Pneumonie", "COVID", "Infarkt", "Insuff."],
            ["A", 120, 30, 5, 6],
            ["B", 10, 300, 77, 8],
            merge=["A1:A2", "B1:C1", "D1:E1"],
        ),
        says="two rows of headings",
        name="table.xlsx",
    ),
    "floats": Case(
        book(KLINIK, ["A", 120.0, 30.0], ["B", 10.0, 300.0]),
        counts=counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "nothing wrong": Case(
        "site,flu,cold\nA,120,30\nB,10,300\nC,55,0\n",
        counts=counts("site,flu,cold\nA,120,30\nB,10,300\nC,55,0\n"),
        clean=True,
    ),
}


# Headings of columns that stand beside counts, with numbers that may be counts.
BESIDE = {
    "IK": (260500139, 260100023),
    "id": (2602, 2601),
    "patient_id": (12, 7),
    "Fall-Nr.": (12, 7),
    "phone": (30880123, 30450123),
    "\u03a3": (151, 312),
    "\u2211": (151, 312),
    "covid %": (20, 97),
    "covid (\u2030)": (200, 970),
    "Vorjahr": (140, 290),
    "previous year": (140, 290),
    "Quartal": (3, 4),
    "cumulative": (150, 460),
    "Kosten EUR": (15000, 22000),
    "Umsatz": (15000, 22000),
    "Nb lits": (750, 690),
    "Patienten": (160, 320),
    "davon Influenza A": (80, 4),
    "of which viral": (80, 4),
    "unlabelled": (4000, 5000),
    "nan": (4000, 5000),
    "-1": (4000, 5000),
}
CASES |= {
    f"beside counts: {name}": Case(
        f"site,pneumonia,{name},covid\nA,120,{a},30\nB,10,{b},300\n",
        counts=counts(TWO),
    )
    for name, (a, b) in BESIDE.items()
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_column_beside_counts_is_a_class_if_one_says_so(name, tmp_path):
    path = tmp_path / "table.csv"
    numbers = BESIDE[name]
    path.write_text(f"site,p,{name}\nA,120,{numbers[0]}\nB,10,{numbers[1]}\n", encoding="utf-8")
    found = read_counts(path, keep=True)
    assert found.counts == LabelCounts(
        [[120, numbers[0]], [10, numbers[1]]], ["A", "B"], ["p", name]
    )
    assert any(name in note for note in found.notes)
    # Data frames share the checks.
    frame = pd.DataFrame({"p": [120, 10], name: numbers}, index=["A", "B"])
    with pytest.raises(InputError) as refused:
        LabelCounts(frame)
    assert f"frame.drop(columns=[{name!r}])" in str(refused.value)


@pytest.mark.parametrize("name", ["N/A", "unbekannt", "unknown", "k. A.", "none"])
def test_a_class_that_may_be_unknown_is_noted(name, tmp_path, fedeas):
    path = tmp_path / "table.csv"
    path.write_text(f"site,pneumonia,{name}\nA,120,500\nB,10,20\n")
    planned = fedeas("plan", path)
    assert planned.code == 0
    assert f"note: class {name} may hold samples whose label is not known" in planned.err


def merged(options: dict, way: dict) -> dict:
    """Add the options of an advice to those that were typed before."""
    lists = {name: [*options.get(name, []), *way[name]] for name in way if name.startswith("drop")}
    return {**options, **way, **lists}


def follow(path, options: dict, steps: int = 8):
    """Yield what every advice leads to: options with counts, or with the refusal."""
    try:
        yield options, read_counts(path, **options).counts
    except InputError as error:
        yield options, error
        for way, _ in getattr(error, "ways", ()) if steps else ():
            if (more := merged(options, way)) != options:
                yield from follow(path, more, steps - 1)


def first_advice(path) -> InputError | LabelCounts:
    """Return what the first advice of each refusal ends in; it is never to keep a doubt."""
    options: dict = {}
    while True:
        try:
            return read_counts(path, **options).counts
        except InputError as error:
            ways = [way for way, _ in getattr(error, "ways", ()) if "keep" not in way]
            if not ways or merged(options, ways[0]) == options:
                return error
            options = merged(options, ways[0])


def write(path, content: str | bytes):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("kind", CASES)
def test_no_table_is_read_wrongly_in_silence(kind, tmp_path):
    case = CASES[kind]
    path = write(tmp_path / case.name, case.content)
    if case.clean:
        assert LabelCounts.load(path) == case.counts
        return
    with pytest.raises(InputError) as refused:
        LabelCounts.load(path)
    assert " --" not in str(refused.value)  # the library speaks Python
    outcomes = list(follow(path, {}))
    if case.says:
        assert any(case.says in str(end) for _, end in outcomes)
        assert isinstance(first_advice(path), InputError)
    if case.corrected:
        outcomes = list(follow(write(path, case.corrected), {}))
    if case.counts is not None:
        assert case.counts in [end for _, end in outcomes if isinstance(end, LabelCounts)]
    elif not case.says:
        pytest.fail("a case needs counts or a refusal")


@pytest.mark.parametrize("kind", [k for k, c in CASES.items() if c.counts and not c.corrected])
def test_the_advice_can_be_typed(kind, tmp_path, fedeas):
    """`plan` names a command; `fedeas counts` writes a table that `plan` reads."""
    case = CASES[kind]
    path = write(tmp_path / case.name, case.content)
    if not case.clean:
        refused = fedeas("plan", path)
        assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)
        assert f"fedeas counts {shlex.quote(str(path))} --out counts.csv --" in refused.err
    options = next(options for options, end in follow(path, {}) if end == case.counts)
    out = tmp_path / "clean.csv"
    cleaned = fedeas("counts", path, "--out", out, *shlex.split(typed_options(options)))
    assert cleaned.code == 0, cleaned.err
    assert f"wrote {out}" in cleaned.err
    planned = fedeas("plan", out, "--json")
    assert json.loads(planned.out)["counts_hash"] == case.counts.fingerprint


def test_an_advice_repeats_what_was_typed(tmp_path, fedeas):
    path = write(tmp_path / "table.csv", "Klinik;a;b\nA;1.200;3\nAll sites;7;8\n")
    typed = ["--delimiter", ";", "--client", "Klinik", "--thousands", "."]
    for number in (0, 2, 4, 6):
        refused = fedeas("counts", path, "--out", tmp_path / "x.csv", *typed[:number])
        assert (refused.code, len(refused.err.splitlines())) == (2, 1)
        command = shlex.split(refused.err.partition("with: ")[2].partition(" (")[0])
        assert all(word in command for word in typed[:number])
    assert command[-2:] == ["--drop-row", "All sites"] or "--drop-row" in command
    assert not (tmp_path / "x.csv").exists()


def test_two_tables_whose_advice_ends_in_a_plain_sentence(tmp_path):
    """Numbers in two ways of writing, and labels of which some are uncertain."""
    path = write(tmp_path / "mixed.csv", "site;p;c\nA;1.240;30\nB;10;12,300\n")
    ends = [end for _, end in follow(path, {})]
    assert all(isinstance(end, InputError) for end in ends)
    assert any(
        "cannot be read as counts, because numbers are written in two" in str(e) for e in ends
    )
    text = "Image,Edema,Mass,Hospital\ni0,1.0,0.0,A\ni1,-1.0,1.0,A\ni2,0.0,1.0,B\n"
    end = first_advice(write(tmp_path / "chexpert.csv", text))
    assert "cannot be read as counts, because '-1.0' is not one" in str(end)


# Data frames are checked as files are


SITES = pd.DataFrame({"flu": [120, 10, 55], "cold": [30, 300, 0]}, index=["A", "B", "C"])
ROWS = pd.DataFrame({"site": [*"AABBBB"], "label": ["flu", "cold", "flu", "flu", "flu", "cold"]})
# A frame, what the refusal says to type, and that as Python.
FRAMES = {
    "margins": (
        pd.crosstab(ROWS.site, ROWS.label, margins=True),
        "frame.drop(columns=['All'], index=['All'])",
        lambda frame: frame.drop(columns=["All"], index=["All"]),
        counted(list(ROWS.itertuples(index=False, name=None))),
    ),
    "a total": (
        SITES.assign(total=SITES.sum(axis=1)),
        "frame.drop(columns=['total'])",
        lambda frame: frame.drop(columns=["total"]),
        LabelCounts(SITES),
    ),
    "a year": (
        SITES.assign(year=2024),
        "frame.drop(columns=['year'])",
        lambda frame: frame.drop(columns=["year"]),
        LabelCounts(SITES),
    ),
    "a total of polars": (
        pl.DataFrame({"site": [*"ABC", "Total"], "flu": [1, 2, 9, 12], "cold": [3, 4, 8, 15]}),
        "frame.filter(~pl.col('site').is_in(['Total']))",
        lambda frame: frame.filter(~pl.col("site").is_in(["Total"])),
        LabelCounts([[1, 3], [2, 4], [9, 8]], [*"ABC"], ["flu", "cold"]),
    ),
    "NaN": (
        SITES.replace(0, np.nan),
        "frame.fillna(0)",
        lambda frame: frame.fillna(0),
        LabelCounts(SITES),
    ),
    "NA": (
        SITES.astype("Int64").replace(0, pd.NA),
        "frame.fillna(0)",
        lambda frame: frame.fillna(0),
        LabelCounts(SITES),
    ),
    "rows": (
        ROWS,
        "pd.crosstab(frame['site'], frame['label'])",
        lambda frame: pd.crosstab(frame["site"], frame["label"]),
        counted(list(ROWS.itertuples(index=False, name=None))),
    ),
    "rows of counts": (
        ROWS.groupby(["site", "label"]).size().reset_index(name="n"),
        "frame.pivot_table(index='site', columns='label', values='n', aggfunc='sum', fill_value=0)",
        lambda frame: frame.pivot_table(
            index="site", columns="label", values="n", aggfunc="sum", fill_value=0
        ),
        counted(list(ROWS.itertuples(index=False, name=None))),
    ),
    "a class without a name": (
        pd.crosstab(ROWS.site, [*["flu", "cold", None] * 2], dropna=False),
        "frame.loc[:, frame.columns.notna()]",
        lambda frame: frame.loc[:, frame.columns.notna()],
        LabelCounts([[1, 1], [1, 1]], ["A", "B"], ["cold", "flu"]),
    ),
    "a client without a name": (
        SITES.set_axis(["A", None, "C"]),
        "frame[frame.index.notna()]",
        lambda frame: frame[frame.index.notna()],
        LabelCounts(SITES.drop(index="B")),
    ),
    "a client of polars without a name": (
        pl.DataFrame({"site": ["A", None, "C"], "flu": [120, 10, 55], "cold": [30, 300, 0]}),
        "frame.drop_nulls(['site'])",
        lambda frame: frame.drop_nulls(["site"]),
        LabelCounts(SITES.drop(index="B")),
    ),
    "columns of two levels": (
        pd.crosstab(ROWS.site, [[*"mfmfmf"], ROWS.label]),
        "frame.T.groupby(level=-1).sum().T",
        lambda frame: frame.T.groupby(level=-1).sum().T,
        counted(list(ROWS.itertuples(index=False, name=None))),
    ),
    "rows of two levels": (
        pd.crosstab([ROWS.site, [*"mfmfmf"]], ROWS.label),
        "frame.groupby(level=0).sum()",
        lambda frame: frame.groupby(level=0).sum(),
        counted(list(ROWS.itertuples(index=False, name=None))),
    ),
    "levels joined": (
        pd.crosstab(ROWS.site, [[*"mfmfmf"], ROWS.label]),
        "frame.set_axis(frame.columns.map(str), axis=1)",
        lambda frame: frame.set_axis(frame.columns.map(str), axis=1),
        LabelCounts(
            pd.crosstab(ROWS.site, [f"{pair}" for pair in zip("mfmfmf", ROWS.label, strict=True)])
        ),
    ),
    "times": (
        SITES.set_axis(pd.date_range("2024", periods=3)),
        "LabelCounts(frame.to_numpy(), list(frame.index), list(frame.columns))",
        lambda frame: LabelCounts(frame.to_numpy(), list(frame.index), list(frame.columns)),
        LabelCounts(
            SITES.to_numpy(), [f"2024-01-0{day} 00:00:00" for day in (1, 2, 3)], ["flu", "cold"]
        ),
    ),
    "rows are classes": (
        pd.crosstab(ROWS.label, ROWS.site),
        "frame.T",
        lambda frame: frame.T,
        counted(list(ROWS.itertuples(index=False, name=None))),
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_no_frame_is_read_wrongly_in_silence(kind):
    frame, typed, follow, counts = FRAMES[kind]
    for read in (LabelCounts, FedEAS(beta=12).plan):
        with pytest.raises(InputError) as refused:
            read(frame)
        assert typed in str(refused.value)
    followed = follow(frame)
    assert (followed if isinstance(followed, LabelCounts) else LabelCounts(followed)) == counts


def test_a_frame_that_is_right_as_it_is():
    frame = SITES.assign(total=SITES.sum(axis=1))
    with pytest.raises(InputError) as refused:
        LabelCounts(frame)
    typed = "LabelCounts(frame.to_numpy(), list(frame.index), list(frame.columns))"
    assert typed in str(refused.value)
    counts = LabelCounts(frame.to_numpy(), list(frame.index), list(frame.columns))
    assert counts.class_names == ("flu", "cold", "total")
    polars = pl.DataFrame({"site": [*"ABC"], "flu": [120, 10, 55], "total": [1, 2, 9]})
    with pytest.raises(InputError) as refused:
        LabelCounts(polars)
    assert "LabelCounts(frame.drop('site').to_numpy(), list(frame['site'])," in str(refused.value)
    kept = LabelCounts(
        polars.drop("site").to_numpy(), list(polars["site"]), polars.drop("site").columns
    )
    assert kept.class_names == ("flu", "total")
    # What fedeas made a frame of is read back, unless somebody changed it.
    assert LabelCounts(counts.to_pandas()) == counts
    with pytest.raises(InputError, match="total"):
        LabelCounts(counts.to_pandas() * 2)


# Labels of data sets


def test_unlabelled_samples_of_a_data_set_are_not_the_last_class(monkeypatch):
    import datasets

    features = datasets.Features(
        {"site": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "bird"])}
    )
    module = types.ModuleType("of_people")
    monkeypatch.setitem(sys.modules, "of_people", module)
    for labels in ([0, 1, -1, -1], [0, 1, None, 1]):
        columns = {"site": ["a", "a", "b", "b"], "label": labels}
        module.data = datasets.Dataset.from_dict(columns, features=features)
        with pytest.raises(InputError, match="without a label"):
            read_counts("of_people:data")
    labelled = module.data.filter(
        lambda sample: sample["label"] is not None and sample["label"] >= 0
    )
    module.data = labelled
    assert read_counts("of_people:data").counts.n.tolist() == [[1, 1], [1, 0]]
    for labels in ([0.0, 1.0, float("nan"), 1.0], [0, 1, 2, -1]):
        module.data = datasets.Dataset.from_dict({"site": [*"aabb"], "label": labels})
        with pytest.raises(InputError, match="without a label"):
            read_counts("of_people:data")


# Options, and time


def test_a_column_of_sizes_alone_is_refused(tmp_path):
    path = write(tmp_path / "table.csv", "site,n\nA,100\nB,20\n")
    with pytest.raises(InputError, match="has no counts"):
        read_counts(path, sizes="n")


def test_options_as_they_are_typed():
    options = {"drop_rows": ["a b", "it's"], "client": "x", "keep": True, "add_up": False}
    assert shlex.split(typed_options(options)) == [
        *("--drop-row", "a b", "--drop-row", "it's", "--client", "x", "--keep"),
    ]
    # A name from a file cannot send control codes to the terminal.
    assert typed_options({"drop_rows": ["\x1b[2J"]}).isprintable()


def timed(read) -> float:
    start = time.process_time()
    with contextlib.suppress(InputError):
        read()
    return time.process_time() - start


def test_a_long_word_in_another_encoding_takes_no_time(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"client,a,b\n" + b"x" * 400_000 + b"\xfc,1,2\n" + b"y" * 400_000 + b",3,4\n")
    assert timed(lambda: read_counts(path)) < 3


def test_a_cell_in_the_last_corner_of_a_sheet_takes_no_time(tmp_path):
    workbook = openpyxl.Workbook()
    for row in (KLINIK, ["A", 120, 30], ["B", 10, 300]):
        workbook.active.append(row)
    workbook.active["XFD1048576"] = 1
    workbook.save(tmp_path / "table.xlsx")
    with pytest.raises(InputError, match="1,048,576"):
        read_counts(tmp_path / "table.xlsx")
    assert timed(lambda: read_counts(tmp_path / "table.xlsx")) < 3


# Parquet


def test_parquet_is_checked_as_text_is(tmp_path):
    path = tmp_path / "table.parquet"
    hot = {kind: [int(label == kind) for _, label in SHOTS] for kind in KINDS}
    sites = {"site": [client for client, _ in SHOTS]}
    images = {"image": [f"{i}.png" for i in range(len(SHOTS))]}
    pd.DataFrame(images | sites | hot).to_parquet(path, index=False)
    file = read_counts(path, client="site", add_up=True, drop_columns=["image"])
    assert file.counts == counted(SHOTS)
    refusals = {
        "rows with all in column Sex": pd.DataFrame(
            {"site": [*"AAAB"], "label": ["flu"] * 3 + ["x"], "Sex": ["m", "f", "all", "m"],
             "count": [1, 2, 3, 4]}
        ),
        "headed Krankheit.*transpose=True": pd.DataFrame(
            {"Krankheit": ["flu", "covid"], "North": [120, 30], "South": [5, 6]}
        ),
        "is the sum of A and B": pd.DataFrame(
            {"site": [*"ABCD"], "flu": [120, 10, 130, 7], "cold": [30, 300, 330, 9]}
        ),
    }  # fmt: skip
    for says, frame in refusals.items():
        frame.to_parquet(path, index=False)
        count = {"label": "label", "count": "count"} if "count" in frame else {}
        with pytest.raises(InputError, match=says):
            read_counts(path, **count)
    # The index of a data frame that names classes is not that of clients.
    pd.crosstab(ROWS.label, ROWS.site).to_parquet(path)
    with pytest.raises(InputError, match="transpose=True"):
        read_counts(path)
    expected = counted(list(ROWS.itertuples(index=False, name=None)))
    assert read_counts(path, transpose=True).counts == expected
    SITES.rename_axis("").to_parquet(path)
    assert read_counts(path).counts == LabelCounts(SITES)
    # The index of a data frame is a name for its rows: these are the clients.
    SITES.to_parquet(path)
    assert read_counts(path).counts == LabelCounts(SITES)
