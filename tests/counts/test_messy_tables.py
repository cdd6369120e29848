"""Tables as people have them: each is planned rightly, or refused with the line that reads it.

Every table goes through `fedeas plan`. What it refuses names a command; the test pastes that, and
compares the counts. None is read wrongly.
"""

import datetime
import io
import json
import random
import shlex
from collections import Counter
from dataclasses import dataclass

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pytest

from fedeas import FedEAS, InputError, LabelCounts

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


def book(*rows, percent=False, sheets=None, merge=()) -> bytes:
    """A workbook, with what people do to sheets."""
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    for row in rows:
        sheet.append(row)
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
    """A table, and its counts; None if it has to be corrected first."""

    content: str | bytes
    counts: LabelCounts | None = None
    name: str = "table.csv"
    other: tuple[str, str] | None = None  # an option of the printed command, and another choice


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
HOT = [",".join(str(int(label == kind)) for kind in KINDS) for _, label in SHOTS]
KLINIK = ["Klinik", "Pneumonie", "COVID"]
MANY = np.random.default_rng(0).integers(0, 900, (10_000, 4))


def lines(head: str, rows) -> str:
    return "\n".join([head, *rows]) + "\n"


CASES = {
    "German, a total": Case(
        "Klinik;Pneumonie;COVID-19;Normal\r\nCharité;1.240;860;12.400\r\nKöln;980;0;8.300\r\n"
        "LMU;120;2.310;410\r\nSumme;2.340;3.170;21.110\r\n".encode("cp1252"),
        counts(
            "Klinik,Pneumonie,COVID-19,Normal\nCharité,1240,860,12400\nKöln,980,0,8300\n"
            "LMU,120,2310,410\n"
        ),
    ),
    "two totals": Case(
        "Klinik;P;C;Gesamt\nA;120;30;150\nB;10;300;310\nC;55;0;55\nInsgesamt;185;330;515\n",
        counts("Klinik,P,C\nA,120,30\nB,10,300\nC,55,0\n"),
    ),
    "a total that is one off": Case(THREE + "Alle Häuser;185;331;610\n", counts(THREE)),
    "a total that is one off, under another name": Case(
        THREE + "Verbund;185;331;610\n", counts(THREE)
    ),
    "cases, one off": Case(
        "site,pneumonia,covid,cases\nA,120,30,150\nB,10,300,310\nC,50,50,101\n",
        counts("site,pneumonia,covid\nA,120,30\nB,10,300\nC,50,50\n"),
    ),
    "a mean": Case(WIDE + "Mean,61,110,203\n", counts(WIDE)),
    "an average": Case(WIDE + "Average,62,110,203\n", counts(WIDE)),
    "a mean and SD": Case(WIDE + "Mean,61,110,203\nSD,55,165,260\n", counts(WIDE)),
    "subtotals": Case(
        TWO + "Subtotal Nord,130,330\nC,50,50\nD,5,9\nSubtotal Süd,55,59\n",
        counts(TWO + "C,50,50\nD,5,9\n"),
    ),
    "a subtotal": Case(TWO + "Subtotal,130,330\nC,50,50\n", counts(TWO + "C,50,50\n")),
    "Zwischensumme": Case(
        TWO + "Zwischensumme,130,330\nC,50,50\nD,7,90\n", counts(TWO + "C,50,50\nD,7,90\n")
    ),
    "a subtotal under another name": Case(
        TWO + "Nord,130,330\nC,50,50\nD,7,90\n", counts(TWO + "C,50,50\nD,7,90\n")
    ),
    "a total of some": Case(TWO + "Total (excl. B),120,30\n", counts(TWO)),
    "the sum of two classes": Case(
        "site,viral,bacterial,pneumonia,normal\nA,20,30,50,100\nB,10,5,15,3\nC,7,8,15,99\n",
        counts("site,viral,bacterial,normal\nA,20,30,100\nB,10,5,3\nC,7,8,99\n"),
    ),
    "the sum of both": Case(
        "site,pneumonia,covid,Sum of both\nA,120,30,150\nB,10,300,310\n", counts(TWO)
    ),
    "percentages": Case("site,p,c,n\nA,12%,3%,85%\nB,4%,90%,6%\nC,38%,0%,62%\n"),
    "percentages and N": Case(
        "site,N,pneumonia,covid,normal\nA,1200,12.5 %,2.5 %,85 %\nB,800,4 %,90 %,6 %\n"
    ),
    "German percentages": Case("Klinik;P;C;N\nA;12,5;2,5;85\nB;4;90;6\n"),
    "blank cells": Case(
        "site,pneumonia,covid\nA,120,\nB,10,300\n",
        counts("site,pneumonia,covid\nA,120,0\nB,10,300\n"),
    ),
    "n<5": Case(
        "site,pneumonia,covid,normal\nA,120,n<5,500\nB,10,300,<5\nC,55,≤4,90\n",
        counts("site,pneumonia,covid,normal\nA,120,2,500\nB,10,300,2\nC,55,2,90\n"),
    ),
    "a negative number": Case("site,p,c\nA,120,-3\nB,10,300\n"),
    "-999": Case("site,p,c\nA,120,-999\nB,10,300\n"),
    "NaN": Case(
        "site,pneumonia,covid\nA,120,NaN\nB,10,#N/A\n",
        counts("site,pneumonia,covid\nA,120,0\nB,10,0\n"),
    ),
    "narrow spaces": Case(
        "site;pneumonia;covid\nA;1\u202f240;30\nB;10;12\u202f300\n",
        counts("site,pneumonia,covid\nA,1240,30\nB,10,12300\n"),
    ),
    "two separators": Case("site;p;c\nA;1.240;30\nB;10;12,300\n"),
    "decimals": Case("Klinik;p;c\nA;1.5;2.25\nB;10;12\n"),
    "1.2k": Case("site,pneumonia,covid\nA,1.2k,30\nB,10,12k\n"),
    "1.234": Case(
        "Klinik;p;c\nA;1.234;2.345\nB;1.111;9.876\n",
        counts("Klinik,p,c\nA,1234,2345\nB,1111,9876\n"),
    ),
    "a class N/A": Case(
        "site,pneumonia,N/A\nA,120,500\nB,10,20\n",
        counts("site,pneumonia,N/A\nA,120,500\nB,10,20\n"),
    ),
    "a title": Case("Report 2024,,,\n,Findings,,\n" + WIDE, counts(WIDE)),
    "two rows of headings": Case(
        "site,2023,,2024,\n,pneumonia,normal,pneumonia,normal\nA,120,30,50,22\nB,10,300,20,12\n"
    ),
    "no heading": Case("A,120,30,500\nB,10,300,20\n"),
    "notes below": Case(TWO + "\nSource: KIS export 2024-05-01\n* preliminary\n", counts(TWO)),
    "a note with a comma and a number": Case(WIDE + "Source: KIS, 2024\n"),
    "a note with a comma": Case(WIDE + "Source: KIS, Mitte\n", counts(WIDE)),
    "long with counts": Case(
        "Hospital,Diagnosis,Patients\nA,pneumonia,120\nA,covid,30\nB,normal,50\nB,covid,400\n",
        counts("x,covid,normal,pneumonia\nA,30,0,120\nB,400,50,0\n"),
    ),
    "long with counts by year": Case(
        "Hospital,Diagnosis,Year,Patients\nA,flu,2023,120\nA,flu,2024,100\nA,covid,2023,30\n"
        "B,covid,2024,400\n",
        counts("x,covid,flu\nA,30,220\nB,400,0\n"),
    ),
    "long with counts of men, women and all": Case(
        "Hospital,Diagnosis,Sex,Patients\nA,flu,m,120\nA,flu,f,100\nA,flu,all,220\nB,covid,f,40\n"
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
        counted(PAIRS),
    ),
    "several labels in a cell": Case(
        lines("patient,hospital,findings", (f"{i},{k},{c}" for i, (k, c) in enumerate(LISTS)))
    ),
    "several labels in a cell, with commas": Case(
        lines(
            "patient,hospital,findings",
            (f'{i},{k},"{c.replace("|", ", ")}"' for i, (k, c) in enumerate(LISTS)),
        )
    ),
    "several labels in a cell, as Python writes them": Case(
        lines("hospital,label", (f'{k},"{c.split("|")}"' for k, c in LISTS))
    ),
    "patients in several rows": Case(
        lines(
            "patient_id,hospital,diagnosis", (f"{i // 2},{k},{c}" for i, (k, c) in enumerate(PAIRS))
        ),
        counted(PAIRS),
    ),
    "patients by a German number": Case(
        lines(
            "FallNr;Haus;Hauptdiagnose",
            (f"{10000 + i};Haus {k};{c}" for i, (k, c) in enumerate(PAIRS)),
        ),
        counted([(f"Haus {k}", c) for k, c in PAIRS]),
    ),
    "patients in a workbook": Case(
        book(
            ["Patient", "Datum", "Klinik", "Diagnose"],
            *([1000 + i, datetime.datetime(2024, 1, 3), k, c] for i, (k, c) in enumerate(PAIRS)),
        ),
        counted(PAIRS),
        name="table.xlsx",
    ),
    "samples with dates": Case(
        lines(
            "date,site,label", (f"{i % 28 + 1}.3.2024,{k},{c}" for i, (k, c) in enumerate(PAIRS))
        ),
        counted(PAIRS),
    ),
    "samples with numbers": Case(
        lines(
            "label,image_id,hospital_id",
            (f"{D.index(c)},{i},{'ABC'.index(k)}" for i, (k, c) in enumerate(PAIRS)),
        ),
        counted([(str("ABC".index(k)), str(D.index(c))) for k, c in PAIRS]),
    ),
    "samples with a sex": Case(
        lines("hospital,sex,label", (f"{k},{'mf'[i % 2]},{c}" for i, (k, c) in enumerate(PAIRS))),
        counted(PAIRS),
    ),
    "samples in three spellings": Case(
        "hospital,diagnosis\nNorth,Covid\nnorth,covid\nNorth ,COVID\nSouth,covid\nSouth,flu\n"
    ),
    "unlabelled samples": Case(
        lines("site,label", (f"{k},{D.index(c) - 1}" for k, c in PAIRS)),
        counted([(k, str(D.index(c) - 1)) for k, c in PAIRS if c != D[0]]),
    ),
    "samples whose label is NaN": Case(
        lines("site,label", (f"{k},{'nan' if c == 'tb' else c}" for k, c in PAIRS)),
        counted([(k, c) for k, c in PAIRS if c != "tb"]),
    ),
    "one-hot, an image in front": Case(
        lines(
            "image,site,Atelectasis,Edema,No Finding",
            (
                f"img{i}.png,{k},{hot}"
                for i, ((k, _), hot) in enumerate(zip(SHOTS, HOT, strict=True))
            ),
        ),
        counted(SHOTS),
    ),
    "one-hot": Case(
        lines(
            "site,Atelectasis,Edema,No Finding",
            (f"{k},{hot}" for (k, _), hot in zip(SHOTS, HOT, strict=True)),
        ),
        counted(SHOTS),
    ),
    "one-hot, a path in front": Case(
        lines(
            "Path,Atelectasis,Edema,No Finding",
            (
                f"site{k}/img{i}.png,{hot}"
                for i, ((k, _), hot) in enumerate(zip(SHOTS, HOT, strict=True))
            ),
        )
    ),
    "CheXpert": Case("Image,Edema,Mass,Hospital\ni0,1.0,0.0,A\ni1,-1.0,1.0,A\ni2,0.0,1.0,B\n"),
    "counts by month and site": Case(
        "date,site,p,c\n2024-01-01,A,12,3\n2024-01-01,B,1,30\n2024-02-01,A,10,0\n2024-02-01,B,2,28\n",
        counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "a site twice": Case(TWO + "A,15,3\n", counts("site,pneumonia,covid\nA,135,33\nB,10,300\n")),
    "a site twice, with spaces": Case(
        TWO + " A ,15,3\n", counts("site,pneumonia,covid\nA,135,33\nB,10,300\n")
    ),
    "counts by month and site, the month a number": Case(
        "site,month,p,c\nA,1,12,3\nB,1,1,30\nA,2,10,0\nB,2,2,28\n",
        counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by week": Case(
        "site,KW,p,c\nA,14,12,3\nA,15,10,0\nB,14,1,30\nB,17,2,28\n",
        counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by year": Case(
        "site,Berichtszeitraum,p,c\nA,2023,12,3\nA,2024,10,0\nB,2023,1,30\nB,2024,2,28\n",
        counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by fold": Case(
        "site,fold,p,c\nA,1,12,3\nA,2,10,0\nB,1,1,30\nB,2,2,28\n",
        counts("site,p,c\nA,22,3\nB,3,58\n"),
    ),
    "counts by month and a total": Case(
        "site,p,c\nA,12,3\nA,10,0\nB,1,30\nAll sites,25,99\n", counts("site,p,c\nA,22,3\nB,1,30\n")
    ),
    "an institution's number in front": Case(
        "IK-Nummer;Klinik;Grippe;Covid\n260500139;Mitte;120;30\n260100023;Nord;10;300\n",
        counts("x,Grippe,Covid\nMitte,120,30\nNord,10,300\n"),
    ),
    "a rank in front": Case(
        "Rang;Klinik;Grippe;Covid\n1;Mitte;120;30\n2;Nord;10;300\n",
        counts("x,Grippe,Covid\nMitte,120,30\nNord,10,300\n"),
    ),
    "one-hot, the client last": Case(
        lines(
            "Atelectasis,Edema,No Finding,site",
            (f"{hot},{k}" for (k, _), hot in zip(SHOTS, HOT, strict=True)),
        ),
        counted(SHOTS),
    ),
    "regions": Case(
        "region,site,pneumonia,covid\nNord,A,120,30\n,B,10,300\nSüd,C,50,50\n,D,5,9\n",
        counts(TWO + "C,50,50\nD,5,9\n"),
    ),
    "months as rows": Case("Month,p,c\nJan,12,3\nFeb,1,30\nMar,10,0\n"),
    "beds": Case(
        "site,beds,J18,U07\nA,1200,120,30\nB,300,10,300\n",
        counts("site,J18,U07\nA,120,30\nB,10,300\n"),
    ),
    "a city": Case("site,city,pneumonia,covid\nA,Berlin,120,30\nB,Köln,10,300\n", counts(TWO)),
    "zip": Case("site,zip,pneumonia,covid\nA,10117,120,30\nB,50937,10,300\n", counts(TWO)),
    "latitudes": Case(
        "site,lat,lon,pneumonia,covid\nA,52.5,13.4,120,30\nB,50.9,6.9,10,300\n", counts(TWO)
    ),
    "mean_age": Case("site,mean_age,pneumonia,covid\nA,62,120,30\nB,48,10,300\n", counts(TWO)),
    "n_patients": Case(
        "site,n_patients,pneumonia,covid\nA,200,120,30\nB,400,10,300\n", counts(TWO)
    ),
    "percent in a heading, with numbers": Case(
        "site,n flu,% flu,n cold,% cold\nA,120,80,30,20\nB,10,3,300,97\n",
        counts("site,n flu,n cold\nA,120,30\nB,10,300\n"),
    ),
    "a number of each row": Case(
        "site,pneumonia,covid,lfd\nA,120,30,1\nB,10,300,2\nC,5,6,3\n", counts(TWO + "C,5,6\n")
    ),
    "classes by split": Case(
        "site,flu_train,flu_test,cold_train,cold_test\nA,120,30,11,2\nB,10,3,44,5\n",
        counts("site,flu_train,flu_test,cold_train,cold_test\nA,120,30,11,2\nB,10,3,44,5\n"),
    ),
    "cars of some years": Case(
        "site,S4 Sedan 2007,S4 Sedan 2012,Z4 2012\nA,120,30,11\nB,10,3,44\n",
        counts("site,S4 Sedan 2007,S4 Sedan 2012,Z4 2012\nA,120,30,11\nB,10,3,44\n"),
    ),
    "a French total, not the sum": Case(
        "Hôpital;p;c\nLyon;120;30\nParis;10;300\nEnsemble;170;435\n",
        counts("x,p,c\nLyon,120,30\nParis,10,300\n"),
    ),
    "a total without a name": Case(TWO + ",130,330\n", counts(TWO)),
    "commas at the end of lines": Case(TWO.replace("\n", ",\n"), counts(TWO)),
    "labels -1 and 1": Case(
        lines("site,label", (f"{k},{2 * (c == D[0]) - 1}" for k, c in PAIRS)),
        counted([(k, str(2 * (c == D[0]) - 1)) for k, c in PAIRS]),
    ),
    "men and women are the classes": Case(
        "site,male,female,unknown\nA,90,70,3\nB,200,140,0\n",
        counts("site,male,female,unknown\nA,90,70,3\nB,200,140,0\n"),
    ),
    "phones are a class": Case(
        "site,phone,mug\nA,90,70\nB,200,140\n", counts("site,phone,mug\nA,90,70\nB,200,140\n")
    ),
    "writers w1, w2": Case(
        "client,cat,dog\nw1,90,70\nw2,200,140\n", counts("client,cat,dog\nw1,90,70\nw2,200,140\n")
    ),
    "rows are diagnoses": Case(
        "Diagnosis,North,South\npneumonia,120,30\ncovid,10,300\n",
        counts("x,pneumonia,covid\nNorth,120,10\nSouth,30,300\n"),
    ),
    "rows are diagnoses, in German": Case(
        "Krankheit,Charité,Köln\nPneumonie,120,30\nCOVID,10,300\n",
        counts("x,Pneumonie,COVID\nCharité,120,10\nKöln,30,300\n"),
    ),
    "rows are classes, under a heading that nobody knows": Case(
        "outcome,Hospital A,Hospital B\nflu,10,20\ncold,4,3\n",
        counts("x,flu,cold\nHospital A,10,4\nHospital B,20,3\n"),
    ),
    "people with an age": Case(
        "site,age_years,outcome\nA,54,0\nA,61,1\nB,33,0\nB,71,0\nB,45,1\nC,66,1\nC,59,2\n",
        counts("x,0,1,2\nA,1,1,0\nB,2,1,0\nC,0,1,1\n"),
    ),
    "one client's labels": Case("diagnosis\nflu\ncold\nflu\n", counts("x,cold,flu\ntable,1,2\n")),
    "one client's people": Case(
        "patient,diagnosis\np1,flu\np2,cold\np3,flu\n", counts("x,cold,flu\ntable,1,2\n")
    ),
    "one client's counts": Case(
        "diagnosis,count\nflu,14\ncold,20\ncovid,7\n",
        counts("x,cold,covid,flu\ntable,20,7,14\n"),
    ),
    "diagnoses in rows": Case(
        "Diagnoses,Charité,Köln\nflu,120,30\ncold,10,300\n",
        counts("x,flu,cold\nCharité,120,10\nKöln,30,300\n"),
    ),
    "a class that begins with total": Case(
        "site,flu,total hip replacement\nA,20,3\nB,4,9\n",
        counts("site,flu,total hip replacement\nA,20,3\nB,4,9\n"),
    ),
    "patients and controls": Case(
        "site,patients,controls\nA,20,30\nB,14,9\n",
        counts("x,patients,controls\nA,20,30\nB,14,9\n"),
    ),
    "a client that begins with average": Case(
        "site,flu,cold\nAverage Joe clinic,20,30\nB,14,90\n",
        counts("x,flu,cold\nAverage Joe clinic,20,30\nB,14,90\n"),
    ),
    "round numbers": Case(
        "site,a,b,c\nA,500,500,1000\nB,500,500,1000\n",
        counts("x,a,b,c\nA,500,500,1000\nB,500,500,1000\n"),
    ),
    "months as numbers": Case("site,2024-01,2024-02\nA,10,30\nB,20,20\n"),
    "digits of users": Case(
        "user,0,1,2\n17,10,3,4\n12,4,5,6\n", counts("x,0,1,2\n17,10,3,4\n12,4,5,6\n")
    ),
    "labels of 0 and 1": Case(
        lines("site,label", (f"{k},{int(c > 'm')}" for k, c in PAIRS)),
        counted([(k, str(int(c > "m"))) for k, c in PAIRS]),
    ),
    "a heading in two lines": Case(
        'site,flu,cold,"Gesamt\n(alle)"\nA,120,30,150\nB,10,300,310\n',
        counts("x,flu,cold\nA,120,30\nB,10,300\n"),
    ),
    "classes in two spellings": Case("hospital,flu,Flu,cold\nA,10,5,7\nB,4,9,3\n"),
    "clients in two spellings": Case("hospital,flu,cold\nSt. Anna,10,7\nst anna,4,3\nB,1,9\n"),
    "subtotals of small numbers, under other names": Case(
        "hospital,flu,cold,covid\nA,10,5,7\nB,4,9,3\nNorth,14,14,10\nC,3,8,9\nD,8,1,4\n"
        "South,11,9,13\n",
        counts("x,flu,cold,covid\nA,10,5,7\nB,4,9,3\nC,3,8,9\nD,8,1,4\n"),
    ),
    "UTF-16": Case(
        "Klinik\tp\tc\nCharité\t120\t30\nKöln\t10\t300\n".encode("utf-16"),
        counts("x,p,c\nCharité,120,30\nKöln,10,300\n"),
    ),
    "UTF-16 without a mark": Case(
        "Klinik\tp\tc\nCharité\t120\t30\nKöln\t10\t300\n".encode("utf-16-le"),
        counts("x,p,c\nCharité,120,30\nKöln,10,300\n"),
    ),
    "two sheets": Case(
        book(
            KLINIK,
            ["A", 120, 30],
            ["B", 10, 300],
            sheets={"2024": ("visible", [KLINIK, ["A", 220, 30], ["B", 10, 400]])},
        ),
        counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "a hidden sheet": Case(
        book(KLINIK, ["A", 120, 30], ["B", 10, 300], sheets={"lookup": ("hidden", [["x", 1]])}),
        counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "percent formats": Case(
        book(KLINIK, ["A", 0.12, 0.88], ["B", 0.04, 0.96], percent=True), name="table.xlsx"
    ),
    "two tables in a sheet": Case(
        book(
            KLINIK, ["A", 120, 30], ["B", 10, 300], [None], ["Klinik", "Flu", "Cold"], ["A", 1, 2]
        ),
        name="table.xlsx",
    ),
    "a formula without a value": Case(
        book([*KLINIK, "Summe"], ["A", 120, 30, "=B2+C2"]),
        counts("x,Pneumonie,COVID\nA,120,30\n"),
        name="table.xlsx",
    ),
    "a date for 1-4": Case(
        book(KLINIK, ["A", 120, datetime.datetime(2024, 1, 4)], ["B", 10, 300]), name="table.xlsx"
    ),
    "two rows of headings in a workbook": Case(
        book(
            ["Klinik", "Lunge", None, "Herz", None],
            [None, "Pneumonie", "COVID", "Infarkt", "Insuff."],
            ["A", 120, 30, 5, 6],
            ["B", 10, 300, 77, 8],
            merge=["A1:A2", "B1:C1", "D1:E1"],
        ),
        counts("x,Pneumonie,COVID,Infarkt,Insuff.\nA,120,30,5,6\nB,10,300,77,8\n"),
        name="table.xlsx",
    ),
    "floats": Case(
        book(KLINIK, ["A", 120.0, 30.0], ["B", 10.0, 300.0]),
        counts("x,Pneumonie,COVID\nA,120,30\nB,10,300\n"),
        name="table.xlsx",
    ),
    "nothing wrong": Case(
        "site,flu,cold\nA,120,30\nB,10,300\nC,55,0\n",
        counts("site,flu,cold\nA,120,30\nB,10,300\nC,55,0\n"),
    ),
}


CASES |= {
    # Ten more
    "German, with suppressed cells and a total that does not add up": Case(
        "Klinik;Grippe;Covid\r\nNord;1.203;<5\r\nSüd;9;80\r\nWest;44;31\r\nGesamt;1.256;111\r\n"
        .encode("cp1252"),
        counts("x,Grippe,Covid\nNord,1203,2\nSüd,9,80\nWest,44,31\n"),
    ),
    "German, with suppressed cells that are none": Case(
        "Klinik;Grippe;Covid\nNord;1.203;<5\nWest;44;31\n",
        counts("x,Grippe,Covid\nNord,1203,0\nWest,44,31\n"),
        other=("--suppressed", "0"),
    ),
    "a workbook with a title and totals": Case(
        book(["Patients by hospital in 2023"], [], ["Hospital", "flu", "cold", "Grand Total"],
             ["North", 1200, 15, 1215], ["South", 9, 80, 89], ["Grand Total", 1209, 95, 1304]),
        counts("x,flu,cold\nNorth,1200,15\nSouth,9,80\n"),
        name="table.xlsx",
    ),
    "a pivot table": Case(
        book(["Patients by hospital"], [], ["Count of id", "Column Labels"],
             ["Row Labels", "flu", "cold", "Grand Total"], ["North", 1200, 15, 1215],
             ["South", 9, 80, 89], ["Grand Total", 1209, 95, 1304], merge=["A1:D1"]),
        counts("x,flu,cold\nNorth,1200,15\nSouth,9,80\n"),
        name="table.xlsx",
    ),
    "records": Case(
        lines("record,hospital,age,diagnosis",
              (f"r{i},{k},{30 + i},{c}" for i, (k, c) in enumerate(PAIRS))),
        counted(PAIRS),
    ),
    "records, some without a diagnosis": Case(
        lines("record,hospital,diagnosis",
              (f"r{i},{k},{'' if c == 'tb' else c}" for i, (k, c) in enumerate(PAIRS))),
        counted([(k, c) for k, c in PAIRS if c != "tb"]),
    ),
    "long": Case(
        "client,class,count\nNorth,flu,1200\nNorth,cold,15\nSouth,flu,9\nSouth,cold,80\n",
        counts("x,cold,flu\nNorth,15,1200\nSouth,80,9\n"),
    ),
    "long, a row twice": Case(
        "client,class,count\nA,x,3\nA,y,4\nB,x,5\nB,y,1\nB,x,6\n", counts("c,x,y\nA,3,4\nB,11,1\n")
    ),
    "a first column called hospital": Case(
        "hospital,flu,cold\nNorth,1200,15\nSouth,9,80\n",
        counts("x,flu,cold\nNorth,1200,15\nSouth,9,80\n"),
    ),
    "one class": Case("client,flu\nNorth,1200\nSouth,9\n"),
    "10,000 clients": Case(
        lines("client,a,b,c,d", (f"k{k},{','.join(map(str, n))}" for k, n in enumerate(MANY))),
        LabelCounts(MANY, [f"k{k}" for k in range(len(MANY))], list("abcd")),
    ),
    "a byte order mark": Case("\ufeff" + TWO, counts(TWO)),
    "a duplicated heading": Case("client,a,b,a\nx,1,2,3\ny,4,5,6\n"),
    "a row of years": Case(
        "client,a,b\nyear,2021,2022\nx,5,90\ny,30,12\n", counts("client,a,b\nx,5,90\ny,30,12\n")
    ),
    # And what else the strict form is not
    "decimal commas": Case(
        "Klinik;a;b\nx;1.240,00;3,0\ny;12;7\n", counts("x,a,b\nx,1240,3\ny,12,7\n")
    ),
    "apostrophes": Case("client,a,b\nx,1'240,3\ny,12,7\n", counts("x,a,b\nx,1240,3\ny,12,7\n")),
    "two sheets, the second": Case(
        book(KLINIK, ["A", 120, 30], ["B", 10, 300],
             sheets={"2024": ("visible", [KLINIK, ["A", 220, 30], ["B", 10, 400]])}),
        counts("x,Pneumonie,COVID\nA,220,30\nB,10,400\n"),
        name="table.xlsx",
        other=("--sheet", "2024"),
    ),
    "records in JSON": Case(
        json.dumps([{"site": k, "label": c} for k, c in PAIRS]), counted(PAIRS), name="table.json"
    ),
    "a table in JSON": Case(
        '[{"hospital": "North", "flu": 1200, "cold": 15}, '
        '{"hospital": "South", "flu": 9, "cold": 80}]',
        counts("x,flu,cold\nNorth,1200,15\nSouth,9,80\n"),
        name="table.json",
    ),
    "a name that the shell would split": Case(
        "my site;a;b\nx;1.240;3\ny;12;7\nall sites;1.252;10\n",
        counts("x,a,b\nx,1240,3\ny,12,7\n"),
        name="it's my table.csv",
    ),
}  # fmt: skip

CASES |= {
    "a first column without a heading, and an empty row": Case(
        ";Diagnose;Geschlecht\nA;flu;m\nA;flu;w\nB;flu;m\nB;cold;w\n;;\n",
        counts("x,cold,flu\nA,0,2\nB,1,1\n"),
    ),
    "a first column without a heading, and an empty cell": Case(
        ";Diagnose;Nr\nA;flu;1\n;cold;2\nB;flu;3\n"
    ),
    "a NUL byte": Case("hospital,flu,cold\nA,1\0,2\nB,3,4\n"),
    "a NUL byte in JSON": Case(
        json.dumps([{"site": "A", "flu": "1\0", "cold": 3}]), name="table.json"
    ),
    "the end of a DOS file": Case(TWO.replace(",", ";") + "\x1a", counts(TWO)),
    "shares": Case("hospital,flu,cold\nA,0.125,0.875\nB,0.500,0.500\n"),
    "shares with commas": Case("hospital;flu;cold\nA;0,125;0,875\nB;0,500;0,500\n"),
    "a share beside thousands": Case("site;p;c\nA;1.240;0.125\nB;10;3\n"),
    "cells suppressed to ranges that exclude each other": Case("h,flu,cold\nA,<5,<10\nB,5-9,4\n"),
    "age groups are labels": Case(
        "hospital,age group,cases\nA,0-9,3\nA,10-19,4\nB,0-9,5\nB,10-19,1\n",
        counts("x,0-9,10-19\nA,3,4\nB,5,1\n"),
    ),
}

CASES |= {
    "a number with a comma that is not quoted": Case("hospital,flu,cold\nA,10,2\nB,1,203,50\n"),
    "rows of other lengths": Case("hospital,flu,cold\nA,1,2,3\nB,4\n"),
    "rows that end early": Case("hospital,flu,cold,rsv\nA,1,2,3\nB,4,5,6\nC\nD,7\nE,8,9\n"),
    "a number alone": Case(TWO + "12\n"),
    "a client whose cells are blank": Case(
        "hospital;flu;cold\nA;1;2\nB;;\nC;4;5\n", counts("x,flu,cold\nA,1,2\nB,0,0\nC,4,5\n")
    ),
    "a client of formulas without values": Case(
        book(KLINIK, ["A", "=1+2", "=5"], ["B", 4, 50]),
        counts("x,Pneumonie,COVID\nA,0,0\nB,4,50\n"),
        name="table.xlsx",
    ),
    "a remark below a sheet": Case(
        book(KLINIK, ["A", 4, 50], ["B", 3, 9], ["Source: KIS"]),
        counts("x,Pneumonie,COVID\nA,4,50\nB,3,9\n"),
        name="table.xlsx",
    ),
    "a heading that lacks a name": Case("hospital,diagnosis,\nA,flu,10\nA,cold,5\nB,flu,3\n"),
    "a strict heading that lacks a name": Case("client,class,\nA,flu,10\nA,cold,5\nB,flu,3\n"),
    "a heading with a sex that lacks a name": Case(
        "hospital,diagnosis,sex,\nA,flu,m,10\nA,cold,m,5\nB,flu,f,3\nB,flu,m,8\n"
    ),
    "long with values": Case(
        "hospital,variable,value\nA,flu,2\nA,cold,2\nB,flu,7\n",
        counts("x,cold,flu\nA,2,2\nB,0,7\n"),
    ),
    "long with cases in German": Case(
        "Standort;ICD;Fälle\nA;J10;2\nA;U07;2\nB;J10;7\n", counts("x,J10,U07\nA,2,2\nB,7,0\n")
    ),
    "long with two columns of numbers": Case(
        "hospital,diagnosis,amount,weight\nA,flu,2,70\nA,cold,2,81\nB,flu,7,90\n"
    ),
    "records in French": Case(
        "N° dossier;Établissement;Diagnostic;Âge\n1;Lyon;grippe;12\n2;Lyon;rougeole;5\n"
        "3;Nîmes;grippe;44\n",
        counts("x,grippe,rougeole\nLyon,1,1\nNîmes,1,0\n"),
    ),
}

CASES |= {
    f"columns of periods: {names}": Case(f"hospital,{names}\nA,10,30,25\nB,20,20,50\n")
    for names in ("2021,2022,2023", "Jahr 2021,Jahr 2022,Jahr 2023", "Q1,Q2,Q3", "Jan,Feb,Mar")
}
CASES |= {
    f"label sets: {head}": Case(f"{head}\nA,0,0,30\nB,1,0,10\nC,1,1,7\n".replace(",", sign))
    for head, sign in (
        ("site,flu,cough,Images", ","),
        ("site,flu,cough,n", ","),
        ("site,flu,cough,images", ";"),
    )
}
CASES |= {
    "columns of years in a workbook": Case(
        book(["hospital", 2021, 2022], ["A", 10, 30], ["B", 20, 20]), name="table.xlsx"
    ),
    "rows are diagnoses, columns are years": Case("diagnosis,2021,2022\nflu,10,30\ncold,20,20\n"),
    "long with years as classes": Case(
        "client,class,count\nA,2021,3\nA,2022,4\nB,2021,5\nB,2022,9\n"
    ),
    "label sets, with the clients twice": Case("site;flu;cough;n\nA;0;0;30\nA;1;0;10\nB;1;1;9\n"),
}

# Headings of columns beside counts that are certainly no classes.
BESIDE = {
    "id": (2602, 2601),
    "patient_id": (12, 7),
    "\u03a3": (151, 312),
    "\u2211": (151, 312),
    "covid %": (20, 97),
    "covid (\u2030)": (200, 970),
    "previous year": (140, 290),
    "Patienten": (160, 320),
    "nan": (4000, 5000),
}
CASES |= {
    f"beside counts: {name}": Case(
        f"site,pneumonia,{name},covid\nA,120,{a},30\nB,10,{b},300\n",
        counts(TWO),
    )
    for name, (a, b) in BESIDE.items()
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into the working directory, and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes, name: str = "table.csv") -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write


def command_of(refusal: str) -> list[str]:
    """Return the words of the command that a refusal prints, without the program."""
    program, *words = shlex.split(refusal.strip().rpartition("run: ")[2])
    assert program == "fedeas"
    return words


@pytest.mark.parametrize("kind", CASES)
def test_a_table_is_planned_rightly_or_the_printed_command_reads_it(kind, write, fedeas):
    case = CASES[kind]
    path = write(case.content, case.name)
    done = fedeas("plan", path, "--json")
    if done.code == 0:
        assert json.loads(done.out)["counts_hash"] == case.counts.fingerprint
        return
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    if case.counts is None:
        if "run: " in done.err:  # only for who says that it is right as it is
            assert "--keep" in command_of(done.err)
        return
    words = command_of(done.err)
    if case.other is not None:
        words[words.index(case.other[0]) + 1] = case.other[1]
    read = fedeas(*words)
    assert read.code == 0, (done.err, read.err)
    planned = fedeas("plan", words[words.index("--out") + 1], "--json")
    assert json.loads(planned.out)["counts_hash"] == case.counts.fingerprint


@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if case.counts is None])
def test_a_table_that_has_to_be_corrected_is_not_counts(kind, write, fedeas):
    case = CASES[kind]
    path = write(case.content, case.name)
    assert fedeas("counts", path, "--out", "counts.csv").code == 2
    with pytest.raises(InputError):
        LabelCounts.load(path)


# `fedeas counts`


@pytest.mark.parametrize("form", ["excel", "german", "english", "long", "transposed", "total"])
@pytest.mark.parametrize("site", ["birds", "covid", "loans", "xray"])
def test_real_tables_in_every_form_are_the_same_counts(site, form, data, write, fedeas, tmp_path):
    source = data / "sites" / f"{site}.csv"
    expected = LabelCounts.load(source)
    frame = pd.read_csv(source, index_col="client")
    path = tmp_path / "table.csv"
    if form == "excel":
        path = tmp_path / "table.xlsx"
        frame.to_excel(path)
    elif form in ("german", "english"):
        sign, separator = (".", ";") if form == "german" else (",", ",")
        frame.map(lambda n: f"{n:,}".replace(",", sign)).to_csv(path, sep=separator)
    elif form == "long":
        long = frame.reset_index().melt("client", var_name="class", value_name="count")
        long.to_csv(path, index=False)
    elif form == "transposed":
        frame.T.to_csv(path, index_label="label")
    else:
        frame.assign(n=frame.sum(axis=1)).to_csv(path)
    done = fedeas("plan", path, "--json")
    if done.code:
        words = command_of(done.err)
        assert fedeas(*words).code == 0
        path = words[-1]
    read = LabelCounts.load(path).to_pandas()
    pd.testing.assert_frame_equal(
        read.loc[list(expected.client_names), list(expected.class_names)], expected.to_pandas()
    )


def test_several_sites_become_one_table(write, fedeas):
    north = write("id,diagnosis\n1,flu\n2,flu\n3,cold\n", "north.csv")
    typed = "--client-name", "North", "--label", "diagnosis", "--out", "a.csv"
    assert fedeas("counts", north, *typed).code == 0
    south = write("client,flu,rash\nSouth,9,80\n", "south.csv")
    assert fedeas("counts", "a.csv", south, "--out", "all.csv").code == 0
    assert LabelCounts.load("all.csv") == counts("x,cold,flu,rash\nNorth,1,2,0\nSouth,0,9,80\n")
    again = fedeas("counts", "a.csv", "a.csv", "--out", "twice.csv")
    assert again.code == 2
    assert fedeas(*command_of(again.err)).code == 0
    assert LabelCounts.load("twice.csv").total == 6


def test_every_column_of_a_file_may_hold_the_labels(write, fedeas):
    text = lines(
        "state,grade,purpose", (f"{k},{c},{'xy'[i % 2]}" for i, (k, c) in enumerate(PAIRS))
    )
    path = write(text)
    for label, expected in (
        ("grade", counted(PAIRS)),
        ("purpose", counted([(k, "xy"[i % 2]) for i, (k, _) in enumerate(PAIRS)])),
    ):
        typed = "--client", "state", "--label", label, "--out", "counts.csv"
        assert fedeas("counts", path, *typed).code == 0
        assert LabelCounts.load("counts.csv") == expected


def test_a_column_of_numbers_that_are_no_counts_is_not_added_up_in_silence(write, fedeas):
    rows = (f"{k},{c},{20 + i}" for i, (k, c) in enumerate(PAIRS))
    path = write(lines("site,label,age", rows))
    typed = "--client", "site", "--label", "label", "--count", "age", "--out", "counts.csv"
    assert fedeas("counts", path, *typed).code == 2


def test_a_command_repeats_what_was_typed(write, fedeas):
    path = write("Klinik;a;b;c\nA;1.200;3;7\nAll sites;1.207;80;9\n")
    done = fedeas("counts", path, "--out", "mine.csv", "--drop-column", "b")
    words = command_of(done.err)
    assert words[words.index("--drop-column") + 1] == "b"
    assert words[words.index("--out") + 1] == "mine.csv"


@pytest.mark.parametrize(
    ("cell", "good", "bad"),
    [("<5", 4, 5), ("<=5", 5, 6), ("\u22645", 5, 6), ("3-6", 3, 2), ("*", 99, -1)],
)
def test_a_suppressed_number_is_read_as_one_that_it_can_be(cell, good, bad, write, fedeas):
    path = write(f"client,a,b\nx,{cell},3\ny,7,9\n")
    assert fedeas("counts", path, "--suppressed", good, "--out", "counts.csv").code == 0
    assert LabelCounts.load("counts.csv").n[0, 0] == good
    assert fedeas("counts", path, "--suppressed", bad, "--out", "counts.csv").code == 2


@pytest.mark.parametrize("name", [*BESIDE, "total"])
def test_a_column_beside_counts_is_a_class_if_one_says_so(name, write, fedeas):
    path = write(f"site,p,{name}\nA,120,200\nB,10,70\n")
    assert fedeas("counts", path, "--keep", "--out", "counts.csv").code == 2  # text cannot say it
    done = fedeas("counts", path, "--keep", "--out", "counts.json")
    assert done.code == 0
    assert LabelCounts.load("counts.json").class_names == ("p", name)
    assert repr(name) in done.err


def test_options_that_contradict_each_other_are_refused(write, fedeas):
    path = write("client,a,b\nx,1,2\ny,3,4\n")
    for typed in (
        ["--count", "a"], ["--label", "a", "--transpose"], ["--blank", "-1"], ["--label", "c"],
        ["--drop-column", "c"], ["--drop-row", "z"], ["--thousands", "#"],
        ["--encoding", "nonsense"], ["--client-name", "x"], ["--delimiter", "ab"],
    ):  # fmt: skip
        done = fedeas("counts", path, *typed, "--out", "counts.csv")
        assert (done.code, len(done.err.splitlines())) == (2, 1), typed


def test_years_are_classes_if_one_says_so(write, fedeas):
    path = write("hospital,2021,2022\nA,10,30\nB,20,20\n")
    words = command_of(fedeas("plan", path).err)
    assert fedeas(*words).code == 0
    assert LabelCounts.load(words[-1]).class_names == ("2021", "2022")


@pytest.mark.parametrize("name", ["samples", "images", "count"])
def test_label_sets_of_clients_with_one_row_each_are_planned_as_label_sets(name, write, fedeas):
    path = write(f"site,flu,cough,{name}\nA,0,0,30\nB,1,0,10\nC,1,1,7\n")
    done = fedeas("plan", path)
    assert done.code == 0
    assert "label set" in done.out + done.err
    with pytest.raises(InputError):
        LabelCounts.load(path)


def test_a_table_is_never_replaced_by_its_counts(write, fedeas, tmp_path):
    text = "client,a,b\nx,<5,3\ny,7,9\n"
    path = write(text, "counts.csv")
    words = command_of(fedeas("plan", path).err)
    assert words[words.index("--out") + 1] != path
    assert fedeas("counts", path, "--suppressed", 2, "--out", tmp_path / path).code == 2
    assert (tmp_path / path).read_text() == text


# Data frames and workbooks in the strict form


SITES = pd.DataFrame({"flu": [120, 10, 55], "cold": [30, 300, 0]}, index=["A", "B", "C"])
ROWS = pd.DataFrame({"site": [*"AABBBB"], "label": ["flu", "cold", "flu", "flu", "flu", "cold"]})
LONG = (
    SITES.rename_axis("client").reset_index().melt("client", var_name="class", value_name="count")
)


@pytest.mark.parametrize(
    "frame",
    [
        SITES,
        SITES.rename_axis("hospital").reset_index(),
        SITES.astype("Int64"),
        SITES.astype(float),
        LONG.iloc[:, [0, 1, 2]],
        pl.DataFrame({"site": [*"ABC"], "flu": [120, 10, 55], "cold": [30, 300, 0]}),
    ],
)
def test_frames_in_the_strict_form(frame):
    read = LabelCounts.from_pandas(frame).to_pandas()
    assert read.loc[[*"ABC"], ["flu", "cold"]].to_numpy().tolist() == SITES.to_numpy().tolist()


@pytest.mark.parametrize(
    "frame",
    [
        pd.crosstab(ROWS.site, ROWS.label, margins=True),
        SITES.assign(total=SITES.sum(axis=1)),
        SITES.assign(year=2024),
        SITES.replace(0, np.nan),
        SITES.astype("Int64").replace(0, pd.NA),
        SITES.set_axis(["A", None, "C"]),
        SITES.set_axis(["A", "A", "C"]),
        SITES.set_axis(["a", "a"], axis=1),
        SITES * 0.5,
        ROWS,
        pd.concat([LONG, LONG]),
        pd.crosstab(ROWS.site, [[*"mfmfmf"], ROWS.label]),
        pd.crosstab(ROWS.label, ROWS.site),
        pl.DataFrame({"site": ["A", None], "flu": [1, 2], "cold": [3, 4]}),
        pl.DataFrame({"site": ["A", "B", "Total"], "flu": [1, 2, 3], "cold": [3, 4, 7]}),
    ],
)
def test_frames_in_another_form_are_refused(frame):
    for read in (LabelCounts, FedEAS(beta=12).plan):
        with pytest.raises(InputError):
            read(frame)


def test_a_frame_of_counts_is_read_back_whatever_its_classes_are_called():
    given = LabelCounts([[1, 2], [3, 4]], ["a", "b"], ["p", "total"])
    assert LabelCounts(given.to_pandas()) == given
    with pytest.raises(InputError, match="total"):
        LabelCounts(given.to_pandas() * 2)


def test_a_file_that_is_only_called_a_workbook_is_refused(write):
    with pytest.raises(InputError):
        LabelCounts.load(write(b"PK\x03\x04rest", "table.xlsx"))


def test_a_cell_in_the_last_corner_of_a_sheet_is_no_table(tmp_path):
    workbook = openpyxl.Workbook()
    for row in (KLINIK, ["A", 120, 30], ["B", 10, 300]):
        workbook.active.append(row)
    workbook.active["XFD1048576"] = 1
    workbook.save(tmp_path / "table.xlsx")
    with pytest.raises(InputError):
        LabelCounts.load(tmp_path / "table.xlsx")


def test_files_in_two_encodings_become_one_table(write, fedeas):
    write("site,flu,cold\nMünchen,1,9\n".encode("cp1252"), "a.csv")
    write("site,flu,cold\nSüd,3,4\n".encode(), "b.csv")
    done = fedeas("counts", "a.csv", "b.csv", "--out", "counts.csv")
    assert fedeas(*command_of(done.err)).code == 0
    assert LabelCounts.load("counts.csv").client_names == ("München", "Süd")


def test_a_heading_may_end_in_more_commas_than_the_rows(write, fedeas):
    path = write("client,a,b,,\nx,1,2\ny,3,4\n")
    done = fedeas("plan", path)
    assert fedeas(*command_of(done.err)).code == 0
    assert LabelCounts.load("counts.csv") == counts("c,a,b\nx,1,2\ny,3,4\n")
