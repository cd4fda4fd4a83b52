"""What the people of Lantern Works talk about among themselves and with their customers, in English."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """Subjects and openings correspond one to one."""

    name: str
    folder: str
    """The folder in which tidy people file it."""
    subjects: tuple[str, ...]
    openings: tuple[str, ...]
    replies: tuple[str, ...]
    attaches: str = ""
    """The attachment of the opening."""
    first_year: int = 2020
    last_year: int = 2030


OFFICE = Topic(
    "office",
    "Projects/New office",
    (
        "Move to Harbour Street: packing plan for {weekday}",
        "New office: desks for the {team} team",
        "Harbour Street floor plan, version {small}",
        "Keys and badges for the new office",
        "Who takes the plants?",
    ),
    (
        "the lease for Harbour Street is signed, so the move from Mill Lane is really happening. The movers come on "
        "{weekday} at eight. "
        "Please label every box with your name and the room number, and leave nothing on the window sills.",
        "I walked through the new rooms yesterday with the electrician. The workshop gets {small} more sockets than "
        "planned, and the "
        "meeting room on the first floor finally has daylight. The {team} team would sit on the harbour side.",
        "attached is the floor plan after our talk on {weekday}. The kitchen moved to the back, the photo corner is "
        "next to the stairs, "
        "and there is room for {small} bicycles in the yard.",
        "the landlord asks for the final list of people who need a badge. I have {small} names so far. Tell me until "
        "{weekday} whom I forgot.",
        "the big fig and {small} smaller plants do not fit into the van. Whoever waters one may have it. The fig bites.",
    ),
    (
        "Looks good to me. Can we keep the big table from Mill Lane? It has survived three moves already.",
        "I would rather sit near the workshop, if nobody minds the noise of the saw.",
        "The network cabinet has to be in before the desks. I need one free day, ideally {weekday}.",
        "Agreed. I booked the movers for {small} people and two vans, they confirmed {amount} for the day.",
        "Please count me in for the unpacking, I will bring coffee and the good scissors.",
        "One question: what happens with the old lamps in the cellar? There are at least {small} of them.",
    ),
    "plan",
    first_year=2022,
    last_year=2023,
)
LAMP = Topic(
    "lamp",
    "Projects/Heron lamp",
    (
        "Heron lamp: result of the heat test",
        "Heron prototype {small}: the shade",
        "Which brass for the Heron base?",
        "Heron launch, state of things",
    ),
    (
        "the Heron ran for {number} hours at full power. The shade stays below 60 degrees, the driver does not: it "
        "reaches 81 in the closed "
        "base. I would like to try the version with the slots before we order glass.",
        "prototype {small} is on the table in the workshop. The joint no longer drifts, and the switch finally has the "
        "sound we wanted. "
        "Have a look before {weekday}, please, because I have to take it apart again.",
        "we have two offers for the base: brushed brass for {amount} per hundred, or lacquered for a little less. The "
        "lacquer scratches if "
        "you look at it sharply.",
        "for the launch we still miss the photographs, the manual in French and {small} samples for the showroom. All "
        "the rest is on its way.",
    ),
    (
        "The slots are fine for me if they point to the wall. Nobody should see them from the sofa.",
        "Brushed, please. We promised something that gets better with the years.",
        "I measured again with the other driver: 68 degrees after {small} hours. That is good enough for the certificate.",
        "Could we move the cable two centimetres to the left? It is in the picture otherwise.",
        "The glass takes four weeks, so we have to decide by {weekday}.",
        "Lovely. I showed it to the people from the library and they want {small} of them.",
    ),
    "photo",
    first_year=2021,
)
STOCK = Topic(
    "stock",
    "Operations",
    (
        "Stock count in {month}",
        "Missing: {small} boxes of sockets",
        "Delivery from Clearglass delayed",
        "Warehouse shelves, again",
    ),
    (
        "the count is done. We have {number} shades, which is {small} more than the books say. The list is attached; "
        "please look at the red lines.",
        "the delivery of {weekday} was {small} boxes short. The driver says they never left Clearglass. Can somebody "
        "call them?",
        "the glass is late again, the new date is {weekday} in two weeks. That touches three orders, and I would like "
        "to tell the customers today.",
        "the shelf next to the gate has given way. Nothing is broken, but please put nothing heavier than {small} kilos on it.",
    ),
    (
        "I called. They found the pallet in their own yard, it arrives on {weekday}.",
        "Then the hotel has to wait. I will write to them, they are usually patient.",
        "Corrected in the books. The difference was the samples for the fair.",
        "Can we have a second supplier for the sockets? This is the third time this year.",
        "Thanks for counting, I know how cold it is in there.",
    ),
    "table",
)
MONEY = Topic(
    "money",
    "Finance",
    ("Budget for {month}", "Reminder: expenses", "Cash forecast, {month}", "Price list for next year"),
    (
        "we are {amount} below plan this month, mostly because the fair costs come later. The table is attached. "
        "Nothing to worry about.",
        "please hand in your expenses for {month} until {weekday}. A photo of the receipt is enough, a description of "
        "the dinner is not needed.",
        "the bank wants to see our forecast for the move. I put {amount} for furniture and the same again for cabling. "
        "Is that realistic?",
        "copper went up by {small} per cent. If we keep the prices, the small pendant earns us nothing. I propose to "
        "raise it gently.",
    ),
    (
        "Realistic for the furniture, optimistic for the cabling.",
        "Mine are in. The taxi from the station was the only thing without a receipt.",
        "I would raise it once and properly instead of twice and apologetically.",
        "Fine with me. Let us look at it together on {weekday}.",
        "Could you send me the numbers per country as well?",
    ),
    "table",
)
PEOPLE = Topic(
    "people",
    "",
    (
        "Lunch on {weekday}?",
        "A warm welcome to our new colleague",
        "Holiday plan for {month}",
        "First aid course",
        "Cake in the kitchen",
    ),
    (
        "there is a new place at the corner of Harbour Street that makes soup. Who joins on {weekday} at half past twelve?",
        "on {weekday} our new colleague starts in the {team} team. Please be nice, and show where the good mugs are.",
        "please enter your holidays for {month}. At least two people of each team should be here, and one who can open "
        "the warehouse.",
        "we have {small} places in the first aid course. It takes a morning, and there is a bandaged doll involved.",
        "I turned a year older and there is cake. It will not last.",
    ),
    (
        "Count me in!",
        "I can't on {weekday}, but the week after is good.",
        "What a nice idea. I bring the spoons.",
        "Entered. I take the last two weeks and can be reached for emergencies, of which there will be none.",
        "Is there still some left?",
        "Thank you, that was a lovely first day.",
    ),
)
FAIR = Topic(
    "fair",
    "Projects/Milan fair",
    ("Milan: our stand", "Fair: who travels when", "Shipping the exhibits to Milan", "After the fair: {number} contacts"),
    (
        "we got the corner stand, {small} metres wide and open to two sides. The wall behind it is ours as well, so we "
        "can finally hang the long pendant.",
        "I collect the travel plans. The train on {weekday} takes nine hours and is half the price of the flight.",
        "the crates leave on {weekday}. Please bring everything that is not screwed to the floor to the gate, with a "
        "list of what is in it.",
        "we came home with {number} cards and {small} real conversations. I entered the real ones; the list is attached.",
    ),
    (
        "I take the train, somebody has to look after the glass.",
        "Please do not forget the spare bulbs this time.",
        "The carnet for the customs is ready, it has {small} pages.",
        "Studio Kim came by twice, they are serious about the stairwell.",
        "Great work, everybody. My feet will recover.",
    ),
    "table",
)
WORK: tuple[Topic, ...] = (OFFICE, LAMP, STOCK, MONEY, PEOPLE, FAIR)

ORDER = Topic(
    "order",
    "Orders",
    (
        "Order {order}: {small} pendant lamps",
        "Quote for {number} reading lights",
        "Replacement shade for order {order}",
        "Order {order}, delivery address",
    ),
    (
        "we would like to order {small} pendant lamps in smoked glass for our lobby, as discussed on the phone. "
        "Delivery to the back entrance, "
        "please, and not before ten. Our purchase order is {order}.",
        "could you send us a quote for {number} reading lights, with and without the dimmer? We open again in {month} "
        "and would need them two "
        "weeks before.",
        "one of the shades of order {order} arrived with a crack. It can't be seen when the light is off, but we are "
        "open in the evening. "
        "Could you send a new one?",
        "we are moving, too: please deliver order {order} to our new address, 14 Quay Road. The lift fits crates up to "
        "two metres.",
    ),
    (
        "Thank you for your order. The lamps leave our workshop on {weekday}; you find the confirmation attached.",
        "Of course. The price for {number} is {amount}, dimmer included. The quote is attached and valid for thirty days.",
        "I am sorry about that. A new shade goes out on {weekday}, and you can keep the old one for the cat.",
        "Noted, the carrier has the new address. They call half an hour before.",
        "Perfect, thank you. Please go ahead.",
        "Thank you, that was quick. My compliments to the workshop.",
    ),
    "order",
)
LIST = Topic(
    "list",
    "Lists/Lampmakers",
    (
        "[lampmakers] Dimmers that hum",
        "[lampmakers] Source for hand-blown glass?",
        "[lampmakers] Restoring a 1930s desk lamp",
        "[lampmakers] Certificate for export, experiences",
    ),
    (
        "does anybody know a trailing-edge dimmer that stays quiet with {small} LEDs on it? I have tried four, and the "
        "cat leaves the room each time.",
        "our glassblower retires in {month}. I look for somebody who makes small series, {number} pieces or so, and "
        "does not mind odd shapes.",
        "I have a desk lamp from the thirties on the bench. The switch is bakelite and broken in {small} places. Glue, "
        "or print a new one?",
        "has anybody had a lamp certified for three markets at once? I am told it takes {small} weeks, which sounds "
        "like a fairy tale.",
    ),
    (
        "Glue it and tell nobody.",
        "There is a workshop near the border that still does this. I send you the name off-list.",
        "It took us twice as long, but they were friendly.",
        "The hum comes from the choke. Put a drop of lacquer on it.",
        "+1, and please tell the list what you found out.",
    ),
)
SLOTS: dict[str, tuple[str, ...]] = {
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
    "team": ("sales", "design", "finance", "workshop", "logistics"),
}
