"""The employees of Lantern Works, and their correspondents."""

from __future__ import annotations

from dataclasses import dataclass

DOMAIN = "lanternworks.example"
COMPANY = "Lantern Works"


@dataclass(frozen=True, slots=True, eq=False)
class Employee:
    """Each exists once and is compared by identity."""

    name: str
    address: str
    role: str = ""
    company: str = COMPANY
    language: str = "en"
    sorts: bool = False
    """Files mail into folders."""
    labels: bool = False
    """Puts labels on it."""

    @property
    def first_name(self) -> str:
        return self.name.split()[0]

    @property
    def is_staff(self) -> bool:
        return self.address.endswith("@" + DOMAIN)


def _staff(name: str, local: str, role: str, *, sorts: bool = False, labels: bool = False) -> Employee:
    return Employee(name, f"{local}@{DOMAIN}", role, sorts=sorts, labels=labels)


STAFF: tuple[Employee, ...] = (
    _staff("Mara Lindqvist", "mara.lindqvist", "Managing Director", labels=True),
    _staff("Tom Okafor", "tom.okafor", "Head of Workshop", sorts=True),
    _staff("Elena Brandt", "elena.brandt", "Finance", sorts=True),
    _staff("Jonas Weber", "jonas.weber", "Sales, Central Europe"),
    _staff("Aiko Tanaka", "aiko.tanaka", "Sales, Asia", labels=True),
    _staff("Accounts", "accounts", "Shared mailbox"),
    _staff("Priya Raman", "priya.raman", "Product Design", sorts=True),
    _staff("Luc Moreau", "luc.moreau", "Sales, France and Belgium"),
    _staff("Sofía Ortega", "sofia.ortega", "Purchasing", sorts=True),
    _staff("Dmitri Sokolov", "dmitri.sokolov", "IT and Facilities", labels=True),
    _staff("Hannah Price", "hannah.price", "People and Office"),
    _staff("Emre Yıldız", "emre.yildiz", "Logistics", sorts=True),
    _staff("Nadia Haddad", "nadia.haddad", "Sales, Middle East"),
    _staff("Wei Zhang", "wei.zhang", "Quality", labels=True),
    _staff("Grace Mbeki", "grace.mbeki", "Marketing"),
    _staff("Oskar Nyström", "oskar.nystrom", "Workshop"),
    _staff("Clara Fontana", "clara.fontana", "Photography", sorts=True),
    _staff("Ben Whitaker", "ben.whitaker", "Workshop"),
    _staff("Yuki Mori", "yuki.mori", "Product Design"),
    _staff("Paula Reis", "paula.reis", "Customer Service", sorts=True),
    _staff("Henrik Dahl", "henrik.dahl", "Electronics", labels=True),
    _staff("Amira Nasser", "amira.nasser", "Customer Service"),
    _staff("Viktor Horvat", "viktor.horvat", "Warehouse"),
    _staff("Ines Keller", "ines.keller", "Finance", sorts=True),
)
ACCOUNTS = STAFF[5]
SELLERS = {"de": 3, "fr": 7, "es": 8, "ja": 4, "zh": 4, "ar": 12, "ru": 9, "tr": 11}
"""Who speaks which language, by index in STAFF."""

CUSTOMERS: tuple[Employee, ...] = (
    Employee("Fiona Grant", "fiona.grant@harbourhotel.example", "Interior", "Harbour Hotel"),
    Employee("Michael Dunn", "m.dunn@dunnandsons.example", "Owner", "Dunn & Sons Interiors"),
    Employee("Rachel Kim", "rachel@studiokim.example", "Architect", "Studio Kim"),
    Employee("Peter van Dijk", "p.vandijk@grachtcafe.example", "Manager", "Grachtcafé"),
    Employee("Laura Bennett", "laura.bennett@northlibrary.example", "Facilities", "North Library"),
    Employee("Samuel Adeyemi", "sam@brightspaces.example", "Buyer", "Bright Spaces"),
)
SUPPLIERS: tuple[Employee, ...] = (
    Employee("Billing", "billing@clearglass.example", "", "Clearglass Ltd"),
    Employee("Invoices", "invoices@brasshouse.example", "", "The Brass House"),
    Employee("Rechnungsstelle", "rechnung@kabelwerk.example", "", "Kabelwerk Nord GmbH"),
    Employee("Customer Care", "care@swiftparcel.example", "", "Swift Parcel"),
    Employee("Accounts Receivable", "ar@voltcity.example", "", "Volt City Energy"),
)
NEWSLETTERS: tuple[Employee, ...] = (
    Employee("The Lighting Letter", "news@lightingletter.example", "", "The Lighting Letter"),
    Employee("Craft & Trade Weekly", "weekly@craftandtrade.example", "", "Craft & Trade"),
    Employee("Harbour District News", "hello@harbourdistrict.example", "", "Harbour District"),
)
TRAVEL = Employee("Farline Bookings", "bookings@farline.example", "", "Farline Travel")
STRANGERS: tuple[Employee, ...] = (
    Employee("Prize Office", "winner@lucky-prize.example", "", ""),
    Employee("Cheap Watches", "deals@watch-outlet.example", "", ""),
    Employee("Account Security", "alert@secure-verify.example", "", ""),
)
FOREIGN: dict[str, tuple[Employee, ...]] = {
    "de": (
        Employee("Jürgen Müller", "j.mueller@lichthaus.example", "Einkauf", "Lichthaus Müller", "de"),
        Employee("Käthe Groß", "k.gross@gasthof-krone.example", "Inhaberin", "Gasthof Krone", "de"),
    ),
    "fr": (
        Employee("Hélène Lefèvre", "helene@atelierlefevre.example", "Directrice", "Atelier Lefèvre", "fr"),
        Employee("François Noël", "f.noel@hoteldesquais.example", "Gérant", "Hôtel des Quais", "fr"),
    ),
    "es": (
        Employee("Begoña Núñez", "bnunez@casaluz.example", "Compras", "Casa Luz", "es"),
        Employee("Íñigo Peña", "inigo@hostalsol.example", "Propietario", "Hostal Sol", "es"),
    ),
    "ja": (
        Employee("佐藤 美咲", "sato@akari-shoten.example", "購買部", "あかり商店", "ja"),
        Employee("鈴木 健一", "suzuki@hotel-minato.example", "総務部", "ホテルみなと", "ja"),
    ),
    "zh": (
        Employee("王小明", "wang@guangming.example", "采购部", "光明灯饰", "zh"),
        Employee("李芳", "li.fang@haigang-hotel.example", "经理", "海港酒店", "zh"),
    ),
    "ar": (
        Employee("سارة الخطيب", "sara@daralnoor.example", "المشتريات", "دار النور", "ar"),
        Employee("خالد منصور", "khaled@marsa-hotel.example", "المدير", "فندق المرسى", "ar"),
    ),
    "ru": (
        Employee("Ольга Смирнова", "smirnova@svetlydom.example", "Отдел закупок", "Светлый дом", "ru"),
        Employee("Игорь Волков", "volkov@gostinica-volna.example", "Директор", "Гостиница «Волна»", "ru"),
    ),
    "tr": (
        Employee("Ayşe Çelik", "ayse@isikevi.example", "Satın Alma", "Işık Evi", "tr"),
        Employee("Oğuz Şahin", "oguz@limanotel.example", "Müdür", "Liman Otel", "tr"),
    ),
}
