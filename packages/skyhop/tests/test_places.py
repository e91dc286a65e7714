"""Places by name or position."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import Skyhop

import small_study
from skyhop.data import places
from skyhop.data.gazetteer import City, Gazetteer, write_gazetteer
from skyhop.data.places import ambiguity_note, find_place, largest_cities, population_of
from skyhop.errors import InputError


@pytest.mark.parametrize(
    ("text", "name", "latitude_deg", "longitude_deg"),
    [
        ("San Diego", "San Diego, US", 32.7, -117.2),
        ("New York", "New York City, US", 40.7, -74.0),
        ("London, GB", "London, GB", 51.5, -0.1),
        ("London, CA", "London, CA", 43.0, -81.2),
        ("London, UK", "London, GB", 51.5, -0.1),
        ("Berlin, Germany", "Berlin, DE", 52.5, 13.4),
        ("Portland, OR", "Portland, US", 45.5, -122.7),
        ("Portland, Maine", "Portland, US", 43.7, -70.3),
        ("San Diego, CA", "San Diego, US", 32.7, -117.2),
        ("münchen", "Munich, DE", 48.1, 11.6),
        ("32.881,-117.237", "32.881,-117.237", 32.881, -117.237),
        (" 10 , 20 , 30 ", "10 , 20 , 30", 10.0, 20.0),
    ],
)
def test_place_is_found(text: str, name: str, latitude_deg: float, longitude_deg: float) -> None:
    place = find_place(text)
    assert place.name == name
    assert place.latitude_deg == pytest.approx(latitude_deg, abs=0.1)
    assert place.longitude_deg == pytest.approx(longitude_deg, abs=0.1)


def test_fifty_names_are_found_at_once() -> None:
    names = [city.name for city in places._gazetteer().cities()[::600]]
    assert len(names) > 50
    find_place("Tokyo")
    begin_s = time.process_time()
    for name in names:
        find_place(name)
    # A fold of all 400,000 names, which each search took once, takes longer than this in all.
    assert time.process_time() - begin_s < 2


def test_a_city_is_found_by_its_other_names() -> None:
    tokyo = find_place("Tokyo")
    for text in ("東京", "TOKYO", "  tokyo ", "Tokyo, JP", "Tōkyō", "tokio"):
        assert find_place(text).name == tokyo.name, text
    assert [city.name for city in places._gazetteer().named("springfield")].count("Springfield") > 3
    assert places._gazetteer().named("springfiel") == []


def test_a_gazetteer_finds_each_of_its_names_and_no_other(tmp_path: Path) -> None:
    names = ["b", "c", *(f"name {number}" for number in range(3_000))]
    cities = [City(f"City {number}", "DE", "1", 0.5, number / 8, 9) for number in range(700)]
    of_cities = [[name for name in names[number % 7 :: 7] if name] for number in range(700)]
    regions = {"countries": [["DE", "Germany", "DEU"]], "states": [["Ohio", "OH"]]}
    write_gazetteer(tmp_path / "few.dat", cities, of_cities, regions, "test")
    few = Gazetteer(tmp_path / "few.dat")
    assert few.cities() == cities
    for place, name in enumerate(names):
        assert few.named(name) == cities[place % 7 :: 7], name
    for name in ("a", "bb", "name", "name 1\t", "name 3000", "z", ""):
        assert few.named(name) == [], name
    assert few.countries == [["DE", "Germany", "DEU"]]
    assert few.states == [["Ohio", "OH"]]


def test_a_search_reads_a_small_part_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    gazetteer = Gazetteer(Path(places.__file__).with_name("cities.dat"))
    whole = gazetteer._read

    def counted(kind: str, block: int) -> str:
        read.append(kind)
        return whole(kind, block)

    monkeypatch.setattr(gazetteer, "_read", counted)
    assert gazetteer.named("san diego")
    assert read.count("names") == 1
    assert 1 <= read.count("cities") <= 4, "San Diego is the name of four cities"


def test_altitude_is_the_third_number() -> None:
    assert find_place("10,20,30").altitude_m == 30
    assert find_place("10,20").altitude_m == 0


def test_largest_city_of_a_name_wins() -> None:
    assert find_place("Paris").name == "Paris, FR"


def test_a_name_that_may_mean_others_says_which_it_is_taken_for() -> None:
    assert ambiguity_note("Portland") == (
        '"Portland" is taken as Portland, US (45.52, -122.68); for another write "Portland, ME"'
    )
    assert find_place("Portland, ME").latitude_deg == pytest.approx(43.66, abs=0.05)
    victoria = ambiguity_note("Victoria")
    assert victoria is not None, "the largest city is called otherwise"
    assert "Hong Kong, HK" in victoria
    for text in ("London", "New York", "Portland, OR", "Hawthorne CA US", "1,2"):
        assert ambiguity_note(text) is None, text


def test_a_command_prints_which_place_it_took(skyhop: Skyhop, tmp_path: Path) -> None:
    note = '"Portland" is taken as Portland, US (45.52, -122.68)'
    ends = ("--from", "Portland", "--to", "New York", "--duration", "2 s")
    assert note in skyhop("path", *ends, "-o", "p.parquet").stderr
    scenario = '[path]\nfrom = "Portland"\nto = "Seattle"\n[[flow]]\n[run]\nduration = "1 s"\n'
    (tmp_path / "s.toml").write_text(scenario, "utf-8")
    assert skyhop("sim", "s.toml", "-o", "run").stderr.count(note) == 1


def test_a_study_prints_which_places_it_took(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = {
        "path": {"from": "Portland", "to": "Denver"},
        "flow": [{"cc": "cubic"}],
        "run": {"duration": "1 s"},
    }
    study = small_study.write(tmp_path / "study.toml", scenario=scenario, repeats=1)
    for command in (("show",), ("run",)):
        output = ("-o", str(tmp_path / "out")) if command == ("run",) else ()
        done = skyhop("study", *command, str(study), *output)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count('"Portland" is taken as Portland, US (45.52, -122.68)') == 1


def test_gateways_are_places_too() -> None:
    assert find_place("Hawthorne CA US").latitude_deg == pytest.approx(33.9, abs=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("San Diegoo", "did you mean San Diego?"),
        ("Atlantis Of The Deep", '"Atlantis Of The Deep" (did you mean Atlantis?); expected'),
        ("0x0 9q9q", 'unknown place "0x0 9q9q"; expected'),
        ("91,0", "is not on Earth"),
        ("1.2.3,4", "is not a position"),
        ("London, XX", 'unknown place "London, XX"'),
        ("", 'unknown place ""'),
    ],
)
def test_unknown_place_is_named_with_a_remedy(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        find_place(text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_largest_cities_are_in_order_and_have_different_names() -> None:
    cities = largest_cities(1000)
    populations = [population for *_, population in cities]
    assert populations == sorted(populations, reverse=True)
    names = [name for name, *_ in cities]
    assert len(set(names)) == len(cities) == 1000, "there are two of Suzhou, CN"
    assert sum(name.startswith("Suzhou, CN") for name in names) == 2
    name, latitude_deg, longitude_deg, altitude_m, population = cities[0]
    found = find_place(name)
    assert (latitude_deg, longitude_deg) == (found.latitude_deg, found.longitude_deg)
    assert (altitude_m, population) == (0.0, population_of(name))
    with pytest.raises(InputError, match="1000000 cities; the list has"):
        largest_cities(1_000_000)


def test_the_population_is_that_of_the_chosen_city() -> None:
    largest, smaller = population_of("London"), population_of("London, CA")
    assert largest is not None
    assert smaller is not None
    assert largest > 8_000_000 > smaller
    assert population_of("10,20") is None
