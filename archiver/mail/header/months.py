"""Month names in the languages in which mail programs write dates, in violation of RFC 5322."""

_NAMES = (
    # English, German, French, Spanish, Italian, Portuguese, Dutch, Swedish/Danish/Norwegian, Polish, Czech, Russian, Turkish,
    # Finnish, Hungarian, Romanian
    "jan january januar jänner janv janvier ene enero gen gennaio janeiro januari sty stycznia styczeń led ledna leden янв"
    " января январь oca ocak tammi tammikuuta janurie ianuarie ian január",
    "feb february februar fév févr février febrero febbraio fev fevereiro februari lut lutego luty úno února únor фев февраля"
    " февраль şub şubat helmi helmikuuta februarie február febr",
    "mar march märz mär mrz mars marzo março marco maart mrt mars marca marzec bře března březen мар марта март mart maalis"
    " maaliskuuta martie március márc maerz",
    "apr april avr avril abr abril aprile kwi kwietnia kwiecień dub dubna duben апр апреля апрель nis nisan huhti huhtikuuta"
    " aprilie április ápr",
    "may mai mayo mag maggio maio mei maj maja kvě května květen мая май mayıs touko toukokuuta május máj",
    "jun june juni juin junio giu giugno junho cze czerwca czerwiec čvn června červen июн июня июнь haz haziran kesä kesäkuuta"
    " iun iunie június jún",
    "jul july juli juil juillet julio lug luglio julho lip lipca lipiec čvc července červenec июл июля июль tem temmuz heinä"
    " heinäkuuta iul iulie július júl",
    "aug august août aou ago agosto augustus augusti sie sierpnia sierpień srp srpna srpen авг августа август ağu ağustos elo"
    " elokuuta augusztus aout",
    "sep september sept septembre septiembre set settembre setembro wrz września wrzesień zář září сен сентября сентябрь сент"
    " eyl eylül syys syyskuuta septembrie szeptember szept",
    "oct october oktober okt octobre octubre ott ottobre out outubro paź października październik říj října říjen окт октября"
    " октябрь eki ekim loka lokakuuta octombrie október",
    "nov november novembre noviembre novembro lis listopada listopad ноя ноября ноябрь kas kasım marras marraskuuta noiembrie"
    " noi",
    "dec december dezember dez déc décembre dic diciembre dicembre dezembro gru grudnia grudzień pro prosince prosinec дек"
    " декабря декабрь ara aralık joulu joulukuuta decembrie desember des",
)

MONTHS: dict[str, int] = {name: number for number, names in enumerate(_NAMES, start=1) for name in names.split()}
