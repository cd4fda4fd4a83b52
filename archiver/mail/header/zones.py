"""Time zones by name, in minutes east of Greenwich. For ambiguous names, the meaning that mail programs use."""

ZONES: dict[str, int] = {
    "UT": 0, "UTC": 0, "GMT": 0, "WET": 0, "Z": 0,
    "EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
    "AST": -240, "ADT": -180, "NST": -210, "NDT": -150, "AKST": -540, "AKDT": -480, "HST": -600, "HDT": -540,
    "BRT": -180, "BRST": -120, "ART": -180, "CLT": -240, "CLST": -180, "COT": -300, "PET": -300, "VET": -240, "UYT": -180,
    "BST": 60, "IST": 330, "WEST": 60, "WEDT": 60, "CET": 60, "CEST": 120, "MET": 60, "MEST": 120, "MEZ": 60, "MESZ": 120,
    "MEWT": 60,
    "EET": 120, "EEST": 180, "MSK": 180, "MSD": 240, "TRT": 180, "SAST": 120, "IDT": 180, "CAT": 120, "EAT": 180, "WAT": 60,
    "GST": 240, "PKT": 300, "NPT": 345, "WIB": 420, "ICT": 420, "HKT": 480, "SGT": 480, "MYT": 480, "PHT": 480, "AWST": 480,
    "JST": 540, "KST": 540, "ACST": 570, "ACDT": 630, "AEST": 600, "AEDT": 660, "EDST": -240, "NZST": 720, "NZDT": 780,
    "NZT": 720,
}  # fmt: skip
