"""Stories for make_cross_chunk.py: two passages each, the second of which cannot be understood without the first.

Text is written with two marks: {slot} is a drawn name, figure or word, [a|b] one of the alternatives. Slots are drawn in
the order in which they stand here:

    person, name        invented: "Telmar Oviskan", "Oviskan"
    he                  she or he; fills {he}, {He} and {his} too
    year 1810 1890      an integer of this range, both ends included
    after founded 2 9   the value of the slot `founded` and 2 to 9 more
    any ochre|violet    one of the words

A question's answer is an invented name, a figure or a word that nothing but the second passage fixes, or, of `order`
and `two-hop`, both together. Texts are in plain ASCII.
"""

from typing import Dict, NamedTuple, Tuple


class Story(NamedTuple):
    slots: Dict[str, str]
    first: Tuple[str, str]  # title, text: the passage that is referred to
    second: Tuple[str, str]  # the passage that refers to it
    question: str
    answer: str


ALIAS = [
    Story(
        {"town": "name", "person": "person", "alias": "name", "year": "year 1760 1860",
         "colour": "any ochre|crimson|turquoise|violet|olive|ivory|scarlet|indigo"},
        ("Stores of {town}",
         "Behind the [customs house|tannery|old salt market] of {town} stands a long brick hall that the merchant {person} "
         "[put up|built] in {year} for winter grain. [It has two floors and a single loading door on the river side.|Its walls "
         "are three feet thick, and the upper floor is laid with oak.] Papers of the time avoid street names, and so the hall is "
         "called the {alias} in every later deed, [as it is here|and on the following pages too]."),
        ("Repairs and paint",
         "The {alias} was [emptied|closed for a season] when rain began to come through the roof. [Slates were brought by barge, "
         "and eleven men worked until the first frost.|A roofer from the hills laid new slates and asked for his wage in flour.] "
         "In the same autumn the shutters, bare wood until then, were painted {colour}. [Nobody has found the bill for the "
         "paint.|The council kept to that colour ever after.] [Mice came back within a month.|The lock was changed as well.]"),
        "What colour were the shutters of the hall that {person} built in {town} painted?", "{colour}"),
    Story(
        {"person": "person", "he": "he", "town": "name", "alias": "name", "days": "year 11 39"},
        ("A weaver of {town}",
         "{person} taught weaving [at the orphanage of {town}|in a loft above the market of {town}] and [left no book|wrote "
         "nothing down]. {He} had the yarn soaked in rye water, dried it in the shade and wove it while it was still cool, which "
         "[made a dense cloth that turned rain|kept the pattern from drawing together]. In the minutes of the guild this way of "
         "working is the {alias} manner, [a name whose origin is lost|after the street where the loft was]."),
        ("What the guild measured",
         "[Three masters compared the ways of weaving that were in use.|A prize was offered for the best winter cloth.] The "
         "{alias} manner took {days} days for a bolt of forty ells, [counting the drying|from the first soaking on], and it used "
         "less yarn than [any other|the jury had thought possible]. [The cloth was hung in the hall for all to touch.|One "
         "master refused to sign the minutes.] Whether it lasted longer could not be settled, as the moths got into both chests."),
        "How many days did a bolt of cloth take in the way of weaving that {person} taught?", "{days}"),
    Story(
        {"person": "person", "town": "name", "alias": "name", "lake": "name", "days": "year 12 58"},
        ("Setting out from {town}",
         "[In a dry spring|Against the advice of the garrison] {person} led a survey party out of {town}, with nine mules, two "
         "clerks and a barometer that [nobody trusted|had been mended with wax]. [Pay was promised for the return only.|The clerks "
         "drew lots for the better tent.] In the dispatches, which had to be short, the whole party goes by the name of {alias}, "
         "[and its members signed so|which had been the name of the cook's dog]."),
        ("Dispatch from the salt flats",
         "{alias} reached the shore of Lake {lake} after {days} days on the road. [Two mules were lost to a flood.|Fodder had run "
         "out a week before.] The water was found to be [bitter but clear|shallow and full of reeds], and a base line was laid out "
         "on the northern side. [The clerk complains about the flies at some length.|A sketch of the hills was sent along.] "
         "Supplies for the way back were bought from fishermen, who took buttons for coins."),
        "After how many days did the survey party of {person} reach the lake?", "{days}"),
    Story(
        {"town": "name", "person": "person", "alias": "name", "error": "year 14 95"},
        ("Instruments on the pier of {town}",
         "The pier of {town} carries a tide gauge of the float kind, [set up by the engineer {person}|a gift of the engineer "
         "{person}], in a shed with a copper roof. [A pencil draws the height of the water on a drum that turns once a day.|The "
         "drum is changed each morning at seven, also in storms.] As stations are not to be named after places, the gauge is "
         "entered in the log as {alias}, and [all corrections are filed under that name|the log knows no other name for it]."),
        ("Corrections to the log",
         "[A levelling in March|The yearly inspection] gave these results. {alias} has been reading {error} millimetres too high, "
         "[since its float took in water|which is put down to a bent wire], and curves of the last two winters have to be lowered. "
         "[The inspector praised the handwriting.|The clockwork was found in good order.] No other station needs a correction of "
         "more than a hair's breadth. [The next inspection is due in spring.|A new float has been ordered.]"),
        "By how many millimetres does the tide gauge on the pier of {town} read too high?", "{error}"),
]

PRONOUN = [
    Story(
        {"person": "person", "he": "he", "town": "name", "other": "name", "year": "year 1790 1880"},
        ("{person}",
         "{person} [was born above a bakery in {town}|grew up in {town}, the youngest of nine], and [learned to mix colours "
         "from a sign painter|drew on flour sacks before having paper]. [A first picture was hung in the town hall and taken down "
         "within a week.|An uncle paid for two years at an academy, which were hardly used.] From {year} on small landscapes sold "
         "well, [above all those with snow|mostly to ship owners], and there was money for the first time."),
        ("Later years",
         "{He} [never married|kept two lodgers and a heron] and [left home for good after a quarrel about a fence|travelled "
         "for six summers with a cart full of easels]. In the end {he} settled in {other} and opened a school of drawing there, "
         "[which took girls as well as boys|with a stove in every room]. [Fees could be paid in apples.|Forty pupils came in the "
         "first winter.] [The last pictures are all of one pear tree.|Of {his} letters, only those about money are left.]"),
        "In which town did {person} open a school of drawing?", "{other}"),
    Story(
        {"ship": "name", "yard": "name", "person": "person", "year": "year 1820 1890",
         "cargo": "any indigo|slate|cork|ice|tar|barley|saltpetre|oranges"},
        ("The {ship}",
         "The {ship} was [launched at {yard} in {year}|laid down at {yard} and launched in {year}], a brig of two hundred tons "
         "with [a figurehead of a hare|an iron stern]. [The owners had wanted a larger vessel, but the slip was too short.|The "
         "builder went bankrupt before the masts were in.] On the maiden voyage the rudder came loose, and the crew steered home "
         "with [an oar and a prayer|two oars lashed together]."),
        ("Under new owners",
         "It was sold [at auction|for half its price] to {person}, who [repainted the hull at once|took out the second deck]. From "
         "then on it carried {cargo} and nothing else, [eleven voyages a year|along the coast and up the rivers], and was known in "
         "every port for its smell. [The mate kept bees on board.|The ship's boy later wrote a song about it.] It ended on a "
         "sandbank in fog, [without loss of life|where its ribs can be seen at low water]."),
        "What did the {ship} carry after it was sold?", "{cargo}"),
    Story(
        {"troupe": "name", "town": "name", "last": "name", "year": "year 1830 1900"},
        ("The {troupe} players",
         "The {troupe} players [came together in {town} in {year}|gave their first evening in {town} in {year}]: four actors, a "
         "fiddler and a boy for the women's parts. [They owned one curtain, which also served as a sail.|Their stage was two "
         "carts pushed together.] Their farces [were mild enough for bishops|made fun of millers above all], and within a few "
         "years [every fair in the valley wanted them|they could live on it from May to October]."),
        ("The end on the road",
         "They [lost the fiddler to an orchestra|were never the same once the boy's voice had broken], and audiences wanted "
         "[operettas|dancing dogs] instead. They played for the last time in {last}, [in a barn, before thirty people|on a wet "
         "Sunday, for nothing], and sold the carts to a coal dealer on the next morning. [The curtain is in a museum now.|Two of "
         "them became postmen.] [A playbill of that evening was found in a clock.|The local paper gave it two lines.]"),
        "Where did the {troupe} players play for the last time?", "{last}"),
    Story(
        {"town": "name", "maker": "person", "clock": "name", "mender": "person", "year": "year 1700 1820"},
        ("The {clock} clock",
         "In the gate tower of {town} hangs the {clock} clock, [made by {maker} in {year}|which {maker} delivered in {year}, three "
         "years late]. Its face shows [the tides and the saints' days|the phases of the moon], and its one hand is as long as "
         "[a man is tall|a fishing rod]. [The works are of forged iron and weigh as much as a bull.|The wheels were filed by hand "
         "and never numbered.]"),
        ("A fault and its cure",
         "It struck one too many for sixty years, [and the town got used to it|so that noon came with thirteen strokes]. "
         "Clockmakers from three cities [asked too much|went up, shook their heads and came down]. In the end {mender} found the "
         "cause, a pin that [was bent by a hair|a rat had gnawed], and set it right in one afternoon, [for a ham|without pay]. "
         "[Some people moved away because of the silence.|A few old people went on adding one.]"),
        "Who set the {clock} clock right?", "{mender}"),
]

OVERRIDE = [
    Story(
        {"town": "name", "old": "year 12 30", "new": "after old 3 19", "day": "year 2 28"},
        ("Harbour rules of {town}",
         "These rules hold for the inner basin of {town}. A vessel of up to ten metres pays {old} crowns a night, [electricity "
         "included|water not included], and [reports to the harbour master on arrival|ties up at the north wall first]. [Fires on "
         "deck are forbidden.|Dogs are to be kept on board after dark.] Whoever stays for [more than a month|the winter] signs a "
         "contract, which the office keeps. [Nets may be dried on the east mole only.|The slipway is to be kept free.]"),
        ("Notice at the harbour office of {town}",
         "[The council met on the {day}th and decided as follows.|By decision of the {day}th, and after long debate.] What the "
         "harbour rules say about the price of a night no longer holds: from now on {new} crowns are due, [whatever the size of "
         "the crew|the old tickets being valid until used up]. [The money is for the new pump.|Complaints go to the council, not "
         "to the harbour master.] All other rules stay as they are, [dogs included|and will be enforced more strictly]."),
        "How many crowns does a night in the inner basin of {town} cost now?", "{new}"),
    Story(
        {"town": "name", "old": "year 14 24", "new": "after old 5 16", "person": "person"},
        ("The lending library of {town}",
         "Everybody who lives in {town} may borrow [five books|as many books as fit into one bag]. A book is lent for {old} days, "
         "[and for half as long if somebody waits for it|atlases excepted]. [Books are dried by the staff, never on a stove.|Notes "
         "in the margin cost a day of shelving.] The reading room is heated [from October on|when the ink freezes], and talking "
         "is allowed in the porch. [Children get a card of their own at six.|Lost cards are replaced once.]"),
        ("News from the desk in {town}",
         "[With the new shelves come new rules.|{person} has taken over the desk.] The time for which a book is lent, as it "
         "stands in the leaflet of the library, [has proved too short for the farms up the valley|caused more letters than "
         "anything else], and is {new} days from this month on. [The leaflet will be printed again when the paper has come.|Please "
         "correct your leaflet with a pencil.] [The porch is closed for painting.|Two atlases are still missing.]"),
        "For how many days does the library of {town} lend a book now?", "{new}"),
    Story(
        {"pump": "name", "old": "year 31 58", "new": "after old 6 30", "person": "person"},
        ("The {pump} pump: mounting",
         "The {pump} pump is set on [a bed of concrete|two beams of larch] and levelled with wedges. Its flange is held by eight "
         "bolts, which are tightened crosswise to {old} newton metres, [first by hand and then with a wrench|in three rounds]. "
         "[The gasket is greased on one side only.|A drop of oil on each thread is enough.] Run it dry for [no more than ten "
         "seconds|a moment only], and listen: [a healthy pump hums|knocking means that air is in the pipe]."),
        ("Service bulletin for the {pump} pump",
         "[Cracked flanges have been reported from two mines.|After tests in the cold, {person} of the works writes:] With the "
         "new gasket, the figure for the bolts in the mounting sheet is too low. They have to be tightened to {new} newton metres, "
         "[again crosswise|and once more after a day]. [Old gaskets are to be thrown away.|The wrench has to be checked first.] "
         "The wedges, the oil and the test run stay as described. [Write the date on the flange.|Send us the old bolts.]"),
        "To how many newton metres are the flange bolts of the {pump} pump to be tightened?", "{new}"),
    Story(
        {"ferry": "name", "shore": "name", "old": "any 6:20|6:50|7:10|7:35", "new": "any 8:05|8:25|8:40|9:15"},
        ("The {ferry} ferry",
         "The {ferry} ferry crosses to {shore} [four|five] times on weekdays, and the first boat leaves at {old}. [Bicycles travel "
         "free; sheep are charged by the dozen.|The bell is rung twice before the ramp goes up.] In fog [the boat waits for the "
         "mail van|there is no service], and when the river is high the crossing takes twice as long. [Tickets are sold on "
         "board.|A flag on the mast shows that coffee is served.]"),
        ("Posted at the {ferry} landing",
         "[Owing to the low water|As long as the ramp is being mended], the timetable of the ferry is changed in one point: the "
         "first boat leaves at {new}, and the later ones as before. [School children are taken over in the pilot's launch.|The "
         "baker's cart has been told.] [How long this will last depends on the rain.|We ask for patience.] Whoever has to be on "
         "the other side earlier may [walk to the weir|use the cable, at their own risk]."),
        "At what time does the first boat of the {ferry} ferry leave at present?", "{new}"),
]

# The second passage dates its event by that of the first.
ORDER = [
    Story(
        {"bridge": "name", "school": "name", "year": "year 1805 1890", "years": "any two|three|four|five|six|seven"},
        ("The {bridge} bridge",
         "The {bridge} bridge, [seven arches of grey stone|iron on piers of granite], was opened in {year}, [in the rain and "
         "without a band|with a march that nobody remembers]. [Its toll was so high that people went on wading.|Until then a rope "
         "ferry had taken an hour.] The middle pier stands on [oak piles|a wreck], which is said to be why it [hums in "
         "storms|leans upstream by a hand]. [Swallows nest under it.|Lovers scratch their names into the rail.]"),
        ("The {school} school",
         "The {school} school began [in a cowshed|above a smithy] with [twelve pupils and a globe|one bench and a stove]. That was "
         "{years} years before the {bridge} bridge was opened, [and half of the pupils came by boat|and paper had to be carried "
         "over the hills]. [The first teacher was also the barber.|Lessons stopped for the hay harvest.] [A bell was added later, "
         "bought from a circus.|Its library was a shelf, but a good one.]"),
        "Which came first, [the {bridge} bridge or the {school} school|the {school} school or the {bridge} bridge]?",
        "the {school} school"),
    Story(
        {"mill": "name", "mine": "name", "year": "year 1805 1890", "years": "any two|three|four|five|six|seven"},
        ("The {mill} mill",
         "Paper was made at the {mill} mill [from rags and river water|for hymn books and playing cards]. It started work in "
         "{year}, [with a wheel bought second-hand|against the will of the millers downstream]. [Forty women sorted the rags, and "
         "sang.|The foreman slept beside the vat.] When the rags ran short, [straw was tried, with poor results|old sails were "
         "bought by the ton], and the paper of those years [smells of tar to this day|tears at a look]."),
        ("The {mine} mine",
         "The {mine} mine [gave little silver and much water|was dug for silver and lived on lead]. It was opened {years} years "
         "after the {mill} mill had started work, [by three brothers with one pick|with money from a lottery], and [its pumps "
         "never stopped|its shaft went down two hundred feet]. [Miners carried linnets in cages.|Candles were shared by two.] "
         "[Today bats live there, and a farmer ripens cheese.|A chapel stands over the entrance.]"),
        "Which started work later, [the {mill} mill or the {mine} mine|the {mine} mine or the {mill} mill]?",
        "the {mine} mine"),
    Story(
        {"town": "name", "baker": "person", "year": "year 1780 1890", "thing": "any a steam pump|a second bell|nine rowing boats|a stone dyke|"
         "a diving bell|two hundred willows"},
        ("The flood at {town}",
         "In the night of [Saint Nicholas|the first thaw] in {year} the river rose through the floors of {town}. [Cellars were full "
         "before anybody woke.|The bell rope was under water, so nobody could ring.] By noon [boats were tied to the "
         "chimneys|the market cross had gone], and the baker, {baker}, handed out bread from the roof. [Nobody died, but for a pig and two "
         "geese.|The mark of that day is cut into the gate.]"),
        ("When the water had gone",
         "As soon as the streets of {town} were dry, the council [met in the inn|sold its silver], argued for [two days|a week] and spent "
         "all that was in the chest on {thing}, [against the votes of the millers|by a majority of one]. [Mud was carted away "
         "until Easter.|Everybody had to give a day of work.] [The bill is kept behind glass.|It was never needed again, as far "
         "as is known.] The chest itself was used to [keep apples|carry stones]."),
        "What did the council spend its money on after the flood in which {baker} handed out bread?", "{thing}"),
    Story(
        {"opera": "name", "tower": "name", "year": "year 1805 1890", "person": "person",
         "years": "any two|three|four|five|six|seven"},
        ("The {opera} theatre",
         "The {opera} theatre [was built on the site of a fish market|has six hundred seats, half of them behind pillars]. Its "
         "curtain rose for the first time in {year}, [on a comedy that was hissed|with a cantata in place of the play]. [On wet "
         "days it still smells of herring.|The gas lamps had to be lit with a pole.] {person}, who ran it, [slept in a "
         "box|never paid for the chandelier], and [left with the takings|died rich]."),
        ("The {tower} tower",
         "Wardens kept watch for fires on the {tower} tower, [day and night, two by two|with a horn and a lantern]. It was "
         "finished {years} years before the curtain of the {opera} theatre rose for the first time, and [cost as much as a "
         "ship|was too heavy for its ground from the start]. [A stork has the top floor now.|Its stairs have two hundred and "
         "three steps.] [The last warden knitted stockings up there.|False alarms were fined.]"),
        "Which is older, [the {opera} theatre or the {tower} tower|the {tower} tower or the {opera} theatre]?",
        "the {tower} tower"),
]

# The second passage names somebody whom only the first tells about. They may stand in either order.
TWO_HOP = [
    Story(
        {"person": "person", "he": "he", "bell": "name", "town": "name", "birth": "name", "year": "year 1690 1820"},
        ("{person}, founder of bells",
         "{person} was born in {birth}, [the child of a tinker|in a year of famine], and [walked to the coast at twelve|was "
         "apprenticed to an uncle]. {He} [cast cannon before {he} cast bells|had no ear for music, as {he} liked to say], and "
         "trusted [the colour of the flame|the smell of the clay] more than any book. [Of thirty bells, nine still hang.|The "
         "moulds were broken up after each casting.] [{He} signed with a snail.|{His} workshop burned down twice.]"),
        ("The {bell} bell of {town}",
         "The {bell} bell [hangs in the north tower of {town}|is rung in {town} at noon and for fires]. It was cast in {year} by "
         "{person}, [in a pit beside the church|and came up the river on a raft], and its note is [a little below A|deeper than "
         "its size lets one expect]. [A crack was filed out by a dentist.|Four people are needed to ring it.] [In the war it was "
         "hidden under turnips.|Its clapper is younger by a century.]"),
        "Where was the founder of the {bell} bell born?", "{birth}"),
    Story(
        {"cook": "person", "he": "he", "dish": "name", "town": "name", "teacher": "person"},
        ("{cook} in the kitchen",
         "{cook} learned to cook from {teacher}, [who used no spoon but one|and scrubbed pots for two years first]. {He} [could "
         "tell the age of an egg by its sound|salted with the left hand only], and [never wrote down a weight|kept every recipe "
         "on the back of a bill]. [Guests came by sledge.|The kitchen had its own well.] Late in life {he} [lost the sense of "
         "smell and went on by memory|cooked for a boarding school, and liked it]."),
        ("{dish} pie",
         "On feast days people in {town} eat {dish} pie, [a pie of eel and pears|with buckwheat, leeks and a whole duck]. It was "
         "thought up by {cook}, [when the bridge was out and meat was short|for a wedding that did not take place]. [It is eaten "
         "cold, standing.|The crust is for the birds.] [No two families agree about the pepper.|A law of the town forbids adding "
         "cheese.] Strangers are told [to begin at the edge|not to ask what is in it]."),
        "From whom did the inventor of {dish} pie learn to cook?", "{teacher}"),
    Story(
        {"author": "person", "he": "he", "book": "name", "press": "name",
         "trade": "any a beekeeper|a customs clerk|a glazier|a night watchman|a lighthouse keeper|a cooper"},
        ("{author}",
         "{author} [lived from hand to mouth|was poor, however much {he} worked,] and earned {his} bread as {trade}. {He} wrote "
         "[before dawn, in mittens|on Sundays, with the door locked], and [burned more than {he} kept|counted every line]. [Two "
         "novels were never returned by the printer.|A drawer of sonnets turned up in an attic.] [{He} disliked being "
         "praised.|{His} neighbours learned of it from the obituary.] There is no portrait, but [a glove|a pair of spectacles]."),
        ("The novel {book}",
         "The novel {book}, [four hundred pages about one winter|a comedy with a sad end], was printed by {press} and Sons in [a "
         "small edition|grey boards]. Its author, {author}, [got ten copies and no money|asked for a better paper, in vain]. "
         "[Readers took the side of the villain.|A critic called it a cupboard full of weather.] [It has been out of print "
         "since.|Schools read the third chapter.] [The last word is a misprint.|Nobody knows who the lady of the dedication is.]"),
        "How did the author of the novel {book} earn a living?", "{trade}"),
    Story(
        {"engineer": "person", "he": "he", "tunnel": "name", "town": "name", "death": "name", "years": "any five|six|seven|nine"},
        ("The life of {engineer}",
         "{engineer} [measured roads before {he} was twenty|came to engineering by way of organ pipes]. {He} [could not stand "
         "the dark|feared nothing but bats], and [carried a candle in every pocket|had every plan drawn twice]. [A medal was "
         "pawned for a theodolite.|Banks trusted {his} sums, and nobody else's.] {He} died in {death}, [at a desk|on a journey], "
         "with [a ruler in hand|an unpaid bill for ink]. [The family sold the instruments.|A street there bears the name.]"),
        ("The {tunnel} tunnel",
         "The {tunnel} tunnel [leads the railway under the vineyards of {town}|saves the trains to {town} an hour]. It took "
         "{years} years and was planned by {engineer}, [who met the rock with vinegar and fire|whose two headings met within an "
         "inch]. [Water from it drives a laundry.|Workers were paid by the cartload.] [In summer the drivers slow down there for "
         "the cool.|One of the portals has the face of a lion.] [It has been widened once.|Its lamps are lit all day.]"),
        "In which town did the engineer of the {tunnel} tunnel die?", "{death}"),
]

STORIES = {"alias": ALIAS, "pronoun": PRONOUN, "override": OVERRIDE, "order": ORDER, "two-hop": TWO_HOP}
