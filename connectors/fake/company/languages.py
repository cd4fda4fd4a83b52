"""Letters to and from customers abroad, each in the charsets that are really used there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tongue:
    charsets: tuple[tuple[str, str], ...]
    """Pairs of charset and transfer encoding; a conversation uses one of them throughout."""
    greeting: str
    closing: str
    reply: str
    """How a mail program in that language introduces a quote."""
    subjects: tuple[str, ...]
    openings: tuple[str, ...]
    """One per subject."""
    answers: tuple[str, ...]
    """The reply to the first opening, to the second, and the thanks for either."""


TONGUES: dict[str, Tongue] = {
    "de": Tongue(
        (("windows-1252", "quoted-printable"), ("utf-8", "quoted-printable"), ("iso-8859-1", "8bit")),
        "Hallo {name},",
        "Schöne Grüße",
        "Am {date} schrieb {name}:",
        (
            "Anfrage: {small} Pendelleuchten für die Gaststube",
            "Lieferung {order} unvollständig",
            "Rückfrage zur Rechnung {order}",
        ),
        (
            "wir möchten unsere Gaststube neu beleuchten und suchen {small} Pendelleuchten aus Messing. Könnten Sie uns "
            "ein Angebot "
            "über die größere Ausführung schicken? Wir öffnen nach dem Umbau im Mai wieder.",
            "heute kam Ihre Lieferung {order} an. Leider fehlen {small} Glasschirme, und ein Karton war völlig "
            "durchnässt. Fotos füge ich gern bei.",
            "auf der Rechnung {order} steht noch unsere alte Anschrift in der Mühlgasse. Bitte stellen Sie sie auf die "
            "neue Straße um.",
        ),
        (
            "vielen Dank für Ihre Nachricht. Das Angebot geht Ihnen morgen früh zu, der Preis je Stück beträgt {amount}.",
            "das tut uns leid. Die fehlenden Schirme verlassen am Dienstag unser Haus, natürlich ohne Versandkosten.",
            "prima, das hat geklappt. Die Leuchten sehen großartig aus!",
        ),
    ),
    "fr": Tongue(
        (("iso-8859-15", "quoted-printable"), ("utf-8", "quoted-printable"), ("utf-8", "base64")),
        "Bonjour {name},",
        "Bien cordialement",
        "Le {date}, {name} a écrit :",
        ("Commande {order} : délai de livraison", "Demande de devis pour {small} appliques", "Facture {order} à corriger"),
        (
            "nous attendons toujours les {small} appliques de la commande {order}. L'hôtel rouvre à Pâques : "
            "pensez-vous qu'elles arriveront à temps ?",
            "pour la rénovation de notre salle à manger, nous cherchons {small} appliques en verre soufflé. "
            "Pourriez-vous nous établir un devis, "
            "livraison à Nantes comprise ?",
            "il y a une erreur sur la facture {order} : la quantité est juste, mais le prix est celui de l'an passé.",
        ),
        (
            "je viens de vérifier à l'atelier : tout part jeudi. Vous recevrez le numéro de suivi dès l'enlèvement.",
            "merci de votre intérêt. Le devis s'élève à {amount}, et il reste valable trente jours.",
            "c'est parfait, merci beaucoup pour votre réponse si rapide.",
        ),
    ),
    "es": Tongue(
        (("iso-8859-1", "8bit"), ("utf-8", "quoted-printable")),
        "Estimado equipo de {name}:",
        "Un cordial saludo",
        "El {date}, {name} escribió:",
        (
            "Pedido {order}: {small} lámparas de mesa",
            "¿Tienen existencias de la lámpara pequeña?",
            "Cambio de dirección de envío",
        ),
        (
            "quisiéramos encargar {small} lámparas de mesa para las habitaciones que dan al jardín. ¿Podrían enviarlas "
            "antes del otoño?",
            "una señora nos pregunta cada semana por la lámpara pequeña de latón. ¿Les quedan {small} unidades, o hay "
            "que esperar?",
            "desde marzo estamos en la calle del Muelle, número {small}. Les ruego que envíen allí el pedido {order}.",
        ),
        (
            "muchas gracias por su pedido. Saldrá del taller el miércoles y el importe es de {amount}.",
            "sí, nos quedan algunas. Le reservo {small} hasta el viernes.",
            "¡recibido! Han llegado todas enteras y lucen muchísimo.",
        ),
    ),
    "ja": Tongue(
        (("iso-2022-jp", "7bit"), ("iso-2022-jp", "7bit"), ("utf-8", "base64")),
        "{name} 様",
        "よろしくお願いいたします。",
        "{date}、{name} さんは書きました:",
        ("ペンダントライト{small}台の見積もりのお願い", "注文{order}の納期について", "ショールーム訪問の件"),
        (
            "いつもお世話になっております。新しい店舗のためにペンダントライトを{small}台購入したいと考えております。"
            "お見積もりをいただけますでしょうか。",
            "お世話になっております。注文{order}の納期を確認させてください。ホテルの改装は来月末に終わる予定です。",
            "来月そちらへ出張する予定です。ショールームを見学させていただくことは可能でしょうか。",
        ),
        (
            "ご連絡ありがとうございます。お見積もりは{amount}です。ご検討ください。",
            "在庫を確認いたしました。来週の火曜日に発送いたします。",
            "どうもありがとうございました。無事に届きました。とても美しい照明です。",
        ),
    ),
    "zh": Tongue(
        (("gb18030", "base64"), ("utf-8", "base64"), ("gb2312", "8bit")),
        "{name}，您好：",
        "此致敬礼",
        "{date}，{name} 写道：",
        ("询价：酒店大堂吊灯{small}盏", "关于订单{order}的交货时间", "新办公室的照明方案"),
        (
            "我们酒店的大堂正在装修，需要{small}盏黄铜吊灯。请问能否在六月之前交货？请报含运费的价格。",
            "订单{order}原定上周发货，但是我们还没有收到运单号。请帮忙查询一下，谢谢。",
            "我们刚刚搬进新办公室，窗户朝北，光线比较暗。想请你们推荐一套照明方案。",
        ),
        (
            "感谢您的来信。报价为{amount}，有效期三十天。",
            "货物已于昨天发出，预计下周到达港口。",
            "已经收到，质量非常好，谢谢！",
        ),
    ),
    "ar": Tongue(
        (("utf-8", "base64"), ("windows-1256", "base64")),
        "السيد/ة {name} المحترم/ة،",
        "مع أطيب التحيات",
        "كتب {name} في {date}:",
        ("طلب عرض سعر لعدد {small} مصباح", "موعد تسليم الطلب {order}", "زيارة المعرض في دبي"),
        (
            "نرغب في شراء {small} مصباح نحاسي لبهو الفندق. هل يمكنكم إرسال عرض سعر يشمل الشحن؟",
            "لم يصل الطلب {order} حتى الآن، والافتتاح بعد ثلاثة أسابيع. نرجو إفادتنا بموعد التسليم.",
            "سنكون في المعرض يوم الثلاثاء ونود أن نرى المجموعة الجديدة.",
        ),
        (
            "شكرا لرسالتكم. السعر الإجمالي هو {amount} والعرض صالح لمدة ثلاثين يوما.",
            "تم شحن الطلب اليوم وسيصل خلال عشرة أيام.",
            "وصلت المصابيح سليمة وهي جميلة جدا، شكرا لكم.",
        ),
    ),
    "ru": Tongue(
        (("koi8-r", "8bit"), ("windows-1251", "base64"), ("utf-8", "quoted-printable")),
        "Здравствуйте, {name}!",
        "С уважением",
        "{date} {name} написал(а):",
        ("Запрос цены на {small} подвесных светильников", "Заказ {order}: сроки поставки", "Новый адрес склада"),
        (
            "мы обновляем зал ресторана и хотели бы купить {small} подвесных светильников из дымчатого стекла. "
            "Сообщите, пожалуйста, цену и сроки.",
            "по заказу {order} мы ещё не получили подтверждения. Когда можно ждать отгрузку?",
            "наш склад переехал: теперь это Портовая улица, дом {small}. Просим отправлять заказы туда.",
        ),
        (
            "спасибо за письмо. Стоимость составит {amount}, отгрузка через две недели.",
            "заказ уже упакован и уедет в четверг.",
            "всё пришло в целости, большое спасибо!",
        ),
    ),
    "tr": Tongue(
        (("iso-8859-9", "8bit"), ("utf-8", "quoted-printable"), ("windows-1254", "quoted-printable")),
        "Merhaba {name},",
        "Saygılarımla",
        "{date} tarihinde {name} şunu yazdı:",
        ("{small} adet sarkıt lamba için fiyat", "{order} numaralı siparişin teslim tarihi", "Yeni mağazamızın açılışı"),
        (
            "yeni mağazamız için {small} adet pirinç sarkıt lamba almak istiyoruz. Kargo dâhil fiyat verebilir misiniz?",
            "{order} numaralı siparişimiz hâlâ gelmedi. Açılışımız iki hafta sonra, bilginizi rica ederim.",
            "mağazamız Liman Caddesi'nde açılıyor. Açılışta sizi de aramızda görmekten mutluluk duyarız.",
        ),
        (
            "ilginiz için teşekkürler. Toplam tutar {amount}, teklif otuz gün geçerlidir.",
            "siparişiniz çarşamba günü yola çıkıyor, takip numarasını göndereceğim.",
            "lambalar sağlam ulaştı, çok güzel görünüyorlar. Teşekkür ederiz!",
        ),
    ),
}
