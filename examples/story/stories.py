"""Short stories from a grammar, which is all that the example's decoder has read. The text is free: it is made here, by chance."""

from __future__ import annotations

import random

HEROES = {
    "fox": "she",
    "heron": "he",
    "miller": "he",
    "old sailor": "he",
    "girl named Ana": "she",
    "boy named Tom": "he",
    "baker": "she",
    "grey cat": "she",
    "young bear": "he",
    "clockmaker": "she",
}
PLACES = {
    "by the river": "water",
    "at the edge of the forest": "wood",
    "in a small town": "town",
    "near the harbour": "water",
    "on a quiet hill": "hill",
    "behind the old mill": "wood",
    "under a tall oak": "wood",
    "beside the lake": "water",
}
WEATHERS = [
    "it was raining",
    "the sun was shining",
    "the wind was strong",
    "snow was falling",
    "the fog was thick",
    "the moon was bright",
]
FINDS = {
    "water": ["a silver fish", "a broken boat", "a bottle with a letter", "a smooth blue stone"],
    "wood": ["a golden leaf", "a wooden box", "a sleeping owl", "a hidden path"],
    "town": ["a lost key", "a red ball", "a silver coin", "an old map"],
    "hill": ["a white feather", "a round mirror", "a small bell", "an old map"],
}
FRIENDS = ["owl", "mouse", "goat", "duck", "hare", "crow", "dog", "frog"]
FEELINGS = {
    "happy": ["smiled", "laughed", "sang a song"],
    "sad": ["sighed", "looked at the ground", "was quiet for a while"],
    "curious": ["looked closer", "asked many questions", "could not wait"],
    "afraid": ["stepped back", "held very still", "closed both eyes"],
    "tired": ["sat down", "yawned", "wanted to rest"],
}
ADVICE = [
    "Take it home and keep it safe",
    "Give it back to the one who lost it",
    "Show it to the others",
    "Leave it where it is",
    "Share it with a friend",
]
AFTER = {
    "Take it home and keep it safe": "took it home and put it near the window",
    "Give it back to the one who lost it": "looked for the owner until the evening",
    "Show it to the others": "showed it to everyone who came along",
    "Leave it where it is": "put it back and walked on",
    "Share it with a friend": "shared it with the {friend}",
}
ENDINGS = [
    "From that day on they were good friends.",
    "That night {hero} slept very well.",
    "And {hero} never forgot that day.",
    "When the stars came out, everyone was home.",
    "The next morning everything was quiet again.",
]


def story(chance: random.Random) -> str:
    """One story: who, where, what was found, what a friend said of it, and what became of it."""
    name = chance.choice([*HEROES])
    pronoun = HEROES[name]
    hero = f"the {name}" if " named " not in name else name.rpartition(" ")[2]
    place = chance.choice([*PLACES])
    find = chance.choice(FINDS[PLACES[place]])
    thing = find.split(" ", 1)[1]
    friend, feeling = chance.choice(FRIENDS), chance.choice([*FEELINGS])
    advice = chance.choice(ADVICE)
    article = "an" if name[0] in "aeiou" else "a"
    lines = [
        chance.choice(
            [f"Once there was {article} {name} who lived {place}.", f"There once lived {article} {name} {place}."]
        ),
        chance.choice(["One day", "One morning", "One evening"])
        + f" {chance.choice(WEATHERS)}, and {pronoun} found {find}.",
        f"{pronoun.capitalize()} was {feeling} and {chance.choice(FEELINGS[feeling])}.",
    ]
    if chance.random() < 0.6:
        lines.append(f'"What is this?" {pronoun} asked. "I think it is {find}," said the {friend}.')
    else:
        lines.append(f"Then a {friend} came along and saw the {thing}.")
    lines += [
        f'"{advice}," said the {friend}.',
        f"So {hero} " + AFTER[advice].format(friend=friend) + ".",
        chance.choice(ENDINGS).format(hero=hero),
    ]
    return " ".join(lines)


def stories(count: int, seed: int) -> list[str]:
    """`count` stories; the same ones for the same seed."""
    chance = random.Random(seed)
    return [story(chance) for _ in range(count)]


if __name__ == "__main__":
    print("\n\n".join(stories(5, 0)))
