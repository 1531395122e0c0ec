#include "eval/calibration_text.h"

namespace cento {

// Four small worlds of six passages. Passages of a world lean on one another (a name given in one is used in the next,
// a rule is changed by a later one), as documents of one folder do; figures and names are made up, so that no model can
// answer from memory.
const std::vector<CalibrationWorld>& calibration_worlds() {
  static const std::vector<CalibrationWorld> worlds = {
      {{
           "Fares and tickets\nThe Sandvar ferry sells single tickets at 46 crowns and day tickets at 80 crowns. A "
           "ticket is "
           "bought at the quay or on board; on board it costs five crowns more, because the mate has to leave the "
           "ropes "
           "to sell it. Children under seven travel free with a grown-up. Bicycles pay half of a single ticket "
           "whatever "
           "their size, and prams pay nothing. A lost ticket is not replaced, but the office keeps found ones for a "
           "fortnight, and people who can name the hour of their crossing usually get theirs back.",
           "Winter timetable\nFrom the first of November to the end of March the boat leaves Sandvar at 7.10, 9.40, "
           "14.10 and 17.40. The return from Holm follows forty minutes later each time. The 9.40 does not sail on "
           "Sundays. When the wind at the outer mark is above eighteen metres a second the skipper may stay in "
           "harbour; "
           "a yellow flag is then hoisted on the mast of the office, and those who wait may sit in the goods shed, "
           "where there is a stove and, since last year, a telephone that reaches the Holm side.",
           "The Marta\nThe boat in daily use is called the Marta. She was built in 1974 at Egerdal as a fishing "
           "vessel, "
           "was lengthened by three metres in 1991, and since then carries sixty persons and two cars. Her engine was "
           "replaced nine winters ago; the old one stands in the school yard at Holm. She is lifted out of the water "
           "for two weeks in every February. In those weeks the smaller Gull takes her place, which carries "
           "twenty-four persons and no cars at all.",
           "Goods and cars\nA car is booked at the office by noon of the day before and costs 190 crowns with its "
           "driver. She takes two of them, or one lorry of at most five tons. While the Gull is in service no car can "
           "be "
           "taken, and bookings for those weeks are moved to the first of March unless the customer asks for the "
           "money. "
           "Goods are left in the shed with a label; parcels under ten kilos travel at 15 crowns, and everything else "
           "is weighed by the mate, whose word is final.",
           "Changes from the first of January\nThe council has agreed to the following. The single ticket rises by "
           "four "
           "crowns, the day ticket stays as it is. Pensioners pay half on weekdays. The crossing at 17.40 is put back "
           "by "
           "twenty minutes to meet the bus from Egerdal, and so is its return. Nothing else in the timetable changes. "
           "Tickets bought before the new year stay good until the end of January, after which the difference has to "
           "be paid on board.",
           "Who to ask\nThe office is run by Tove Brandal, who also does the accounts. She is there on weekdays from "
           "eight until one. The skipper, Jens Aune, can be spoken to on the quay before each crossing but does not "
           "take bookings. Complaints go to the council's clerk at Egerdal in writing. If somebody has been left "
           "behind on Holm in the evening, the keeper of the lighthouse has a room with two beds, and the ferry pays "
           "for it when the last boat did not sail.",
       },
       {
           {"What does a single ticket bought at the quay cost in February, after the council's changes?", {0, 4}},
           {"Can I take my car across in the two weeks in February when the Marta is out of the water, and why?",
            {2, 3}},
           {"When does the last boat of the day leave Sandvar in January?", {1, 4}},
       }},
      {{
           "Mail queue, overview\nPostern keeps every message as one file in the spool folder until the far side has "
           "taken it. A message that could not be handed over waits for four minutes, then eight, then sixteen, and so "
           "on up to six hours between attempts. After five days it goes back to its sender with the last reply of the "
           "far side in the text. The queue is read at start in the order of arrival, so that a restart does not let "
           "new "
           "mail overtake old mail. All times can be changed in postern.conf.",
           "Settings of the queue\nfirst_wait is the time before the second attempt, in seconds, and is 240 unless it "
           "is set. longest_wait is the upper end, 21600. give_up_after is in days. A value that cannot be read stops "
           "the server at start with the line named; nothing is ever guessed. The settings are read again when the "
           "process gets a hang-up signal, and messages that wait already keep the time they were given. There is no "
           "setting for the number of attempts, since it follows from the other three.",
           "Version 3.2, what is new\nThe spool folder is now split into sixteen folders by the last digit of a "
           "message's name, because some file systems grow slow with a hundred thousand files in one place. The first "
           "start after the update moves old files and may take a minute. The default of first_wait is 60 instead of "
           "what it was. Messages to several receivers on one host are handed over in one connection. The command "
           "spool-list prints ages in hours rather than in seconds.",
           "Limits and refusals\nA message above 40 megabytes is refused at once. A sender may have 200 messages in "
           "the "
           "queue; the next one gets the reply 452 and may be sent later. Hosts on the list called known are free of "
           "this limit. When the disk that holds the spool has less than 500 megabytes left, nothing is accepted from "
           "outside, while local mail still is. Refusals are counted by reason, and the counts can be read with the "
           "command postern-status.",
           "Running two servers\nTwo servers may share one list of users but never one spool folder: each locks it and "
           "the second one says so and ends. To take over from a server that has died, move its folder beside the own "
           "one and run spool-merge, which renames messages whose names exist already. It may be stopped and started "
           "again at any point. The one that died must not be started while this runs. Messages that it was handing "
           "over at that moment may arrive twice, which the far side usually notices.",
           "Trouble and what it means\n\"Locked by another process\" means what it says; look for the process with the "
           "number in the file called lock. \"Deferred\" in the log is no fault: the far side asked for patience. If "
           "ages in the list only grow, the name service is the usual cause. A line with 452 belongs to the limit on "
           "senders. After an update, \"unknown folder layout\" means that an older server was started on a spool that "
           "a newer one has split; put the newer one back.",
       },
       {
           {"How long does Postern 3.2 wait by default before it tries a message a second time?", {1, 2}},
           {"Why does a sender get the reply 452, and which hosts never get it?", {3, 5}},
           {"May I start the second server on the same spool folder, and what do I do when the first one has died?",
            {4, 0}},
       }},
      {{
           "The reading room\nThe library at Ulmenau has a reading room of thirty-two seats, open from nine to seven "
           "and "
           "on Saturdays until noon. A seat is given out at the desk for the whole day and is lost when its reader "
           "stays "
           "away for more than an hour. Coats and bags go into the lockers by the stairs. Pencils are allowed, ink is "
           "not. There are six seats with a lamp of their own along the north wall; they are kept for those who work "
           "with maps until ten o'clock and are free for all after that.",
           "Borrowing\nA card costs nothing for people who live in the district and eight florins a year for others. "
           "With it ten volumes may be taken home for four weeks, and twice as long if nobody else has asked for them. "
           "Volumes printed before 1850 are read in the house. Whoever brings a book back late pays 20 pennies for "
           "each "
           "week that has begun. Teachers may keep a set of up to thirty volumes for a school term when their head "
           "signs for it.",
           "The Lindner collection\nIn 1926 the widow of the surveyor Albin Lindner gave the library his maps, some "
           "eleven hundred sheets, and the cabinet in which they still lie. The oldest is a drawing of the Ulme valley "
           "from 1688. The sheets are numbered in the order in which he bought them, not by place, so that the printed "
           "list has to be used. Copies are made on Thursdays. By his wish no sheet may leave the house, not even for "
           "an exhibition, and the two that did in 1951 came back with a stain.",
           "Rules of the map cabinet\nSheets are fetched by the staff at ten, at one and at four o'clock. A reader has "
           "one of them on the table at a time and turns it with both hands. Those from before 1700 are shown only in "
           "the presence of the keeper, at present Ms Rahel Sommer, who is in the house on Tuesdays and Thursdays. "
           "Tracing is forbidden. Photographs may be taken without flash. A tear, however old it looks, is told at the "
           "desk before the sheet is moved.",
           "Notice of the spring works\nFrom the third of April the stairs will be repaired and the lockers cannot be "
           "reached. Bags may be left with the porter meanwhile. The reading room closes at five instead of seven for "
           "as "
           "long as the work lasts, which should be six weeks. Seats with lamps cannot be used, since the cable runs "
           "behind the scaffold. Lending goes on at the side door. The library asks for patience and has put up a "
           "kettle "
           "in the hall.",
           "Fees and copies\nA copy of a page costs 10 pennies, of a map sheet two florins, or three in colour. Orders "
           "for copies of maps are taken all week but carried out on one day only. Letters of reminder are free for "
           "the "
           "first time and cost one florin after that. A lost volume is paid for at its price in the trade and five "
           "florins for the work. A card that was lost is replaced once in a year at no charge.",
       },
       {
           {"On which weekday could somebody see the drawing of 1688 and also get a copy of a map made?", {2, 3}},
           {"Until what time is the reading room open on a weekday in late April, and where do bags go?", {0, 4}},
           {"What does it cost to bring a book back two and a half weeks late, and what to copy a map in colour?",
            {1, 5}},
       }},
      {{
           "Starting the leaven\nMix 50 grams of rye flour with as much water of 30 degrees and leave it covered in a "
           "warm place. On each of the next three days add 25 grams of both. On the fifth day it should double within "
           "eight hours and smell of apples; if it smells of glue it was too cold. This is what the book calls Bertha. "
           "She lives in the refrigerator and is fed once a week with 20 grams of flour and 20 of water. A grey liquid "
           "on top is poured away and does no harm.",
           "The country loaf\nOn the evening before, stir 100 grams of Bertha with 150 grams of rye flour and 150 of "
           "water. In the morning add 350 grams of wheat flour, 11 grams of salt and 200 of water. Knead for ten "
           "minutes, rest for an hour, shape, and let it rise for three hours in a floured basket. Bake at 240 degrees "
           "for fifteen minutes with steam, then at 200 for thirty-five. It is done when the bottom sounds hollow. The "
           "crumb is cut on the next day at the earliest.",
           "The quick loaf\nFor days without time: 500 grams of wheat flour, 7 grams of dry yeast, 10 grams of salt "
           "and "
           "330 of lukewarm water. It is kneaded, rises for fifty minutes and goes into a cold oven that is set to 220 "
           "degrees; it needs forty-five minutes from then on. It keeps for two days. With 50 grams of leaven from the "
           "refrigerator, unfed, it tastes of more and keeps for a third one. The tin must be greased, which the "
           "country "
           "loaf's basket must never be.",
           "Ovens\nThe times in this book are for an oven with heat from above and below. With a fan set it twenty "
           "degrees lower throughout. Steam comes from a cup of water that is thrown onto a hot tray, after which the "
           "door is shut at once; with a fan it has to stand still for these minutes, or the steam is gone. Gas ovens "
           "brown from below: put a second tray under the first for the last twenty minutes. An old oven is usually "
           "colder than it says.",
           "Errata of the second printing\nPage 31, the country loaf: the amount of salt is 9 grams and not what is "
           "printed there. Page 44, the seed rolls: they bake for eighteen minutes, at the same heat. Page 52: the "
           "photograph shows the quick loaf. On page 12 Bertha is fed twice a week in summer, when kitchens are above "
           "25 degrees. The author thanks the readers at Kolm who have baked every page and weighed all of it twice.",
           "Questions that readers ask\nCan the rise be slowed down? Yes: after shaping, the country loaf may stand in "
           "the refrigerator for up to fourteen hours and is baked straight from there, five minutes longer. Can spelt "
           "be used? In place of wheat, with 20 grams of water less. What if the leaven was forgotten for a month? "
           "Feed "
           "it on two days running and look whether it doubles. Does it freeze? It does, but wakes up slowly, and a "
           "dried flake in an envelope is the safer copy.",
       },
       {
           {"How many grams of salt go into the country loaf?", {1, 4}},
           {"At which temperatures is the country loaf baked in an oven with a fan?", {1, 3}},
           {"How often is Bertha fed in a hot summer, and what is Bertha?", {0, 4}},
       }},
  };
  return worlds;
}

}  // namespace cento
