"""Environments pass the checkers of Gymnasium and PettingZoo, and seeds repeat them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs_gym
from skyhop.errors import InputError


@pytest.fixture(autouse=True)
def _needed() -> None:
    needs_gym()


WORLD: dict[str, Any] = {
    "path": {"kind": "fixed", "rtt": "40 ms"},
    "link": {"rate": "20 Mbit/s", "queue": "100 kB"},
    "run": {"duration": "4 s"},
    "flow": [{"cc": "policy"}],
    "draw": [
        {"key": "link.rate", "range": {"from": 2, "to": 50, "scale": "log", "unit": "Mbit/s"}},
        {"key": "path.rtt", "values": ["20 ms", "80 ms"], "weights": [1, 3]},
        {
            "points": {
                "alone": {},
                "with cubic": {"flow": [{"cc": "policy"}, {"cc": "cubic", "start": "1 s"}]},
            }
        },
    ],
}
SEVERAL = {
    **WORLD,
    "flow": [{"cc": "policy"}, {"cc": "policy", "start": "1 s"}],
    "draw": WORLD["draw"][:2],
}


def test_the_framework_finds_nothing_wrong_with_an_environment() -> None:
    from gymnasium.utils.env_checker import check_env

    from skyhop_lab import gym

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Observations have no bounds, of which check_env warns.
        warnings.filterwarnings("ignore", message=".*(minimum|maximum) value is -?infinity.*")
        check_env(gym.Environment(WORLD, "astraea"), skip_render_check=True)


def test_the_framework_finds_nothing_wrong_with_agents() -> None:
    from pettingzoo.test import api_test, seed_test

    from skyhop_lab import gym

    api_test(gym.Agents(SEVERAL, "astraea", most_agents=3), num_cycles=600)
    seed_test(lambda: gym.Agents(SEVERAL, "astraea", most_agents=2), num_cycles=100)


def _episode_log(env: Any, seed: int) -> list[Any]:
    observation, info = env.reset(seed=seed)
    log = [observation.tolist(), info["drawn"]]
    actions = np.random.default_rng(1)
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(actions.uniform(-1, 1, 1))
        log.append((observation.tolist(), reward, terminated, truncated, info))
        over = terminated or truncated
    return log


def test_a_seed_repeats_an_episode_to_the_last_bit() -> None:
    from skyhop_lab import gym

    first, again = (_episode_log(gym.Environment(WORLD, "astraea"), 7) for _ in range(2))
    assert first == again
    assert _episode_log(gym.Environment(WORLD, "astraea"), 8) != first
    assert len(first) > 100


def test_parallel_environments_equal_single_ones() -> None:
    from skyhop_lab import gym

    def run(threads: int) -> list[Any]:
        env = gym.Environments(WORLD, "astraea", num_envs=5, threads=threads)
        env.reset(seed=3)
        actions = np.random.default_rng(2)
        return [
            [np.asarray(part).tolist() for part in env.step(actions.uniform(-1, 1, (5, 1)))[:4]]
            for _ in range(400)
        ]

    one, two = run(1), run(2)
    assert one == two
    alone = gym.Environment(WORLD, "astraea")
    alone.np_random = np.random.default_rng(3)
    observation, _ = alone.reset()
    actions = np.random.default_rng(2)
    for step in one[:100]:
        observation, reward, *_ = alone.step(actions.uniform(-1, 1, (5, 1))[0])
        assert (observation.tolist(), reward) == (step[0][0], step[1][0])


def test_an_episode_that_has_ended_is_followed_by_the_next() -> None:
    from skyhop_lab import gym

    env = gym.Environments(WORLD, "astraea", num_envs=2)
    env.reset(seed=1)
    over, begun = 0, 0
    for _ in range(500):
        _, _, terminated, truncated, infos = env.step(np.zeros((2, 1)))
        assert not (terminated & truncated).any()
        over += int((terminated | truncated).sum())
        begun += len(infos.get("drawn", [])) and int(infos["_drawn"].sum())
    assert over >= 4
    assert over - 2 <= begun <= over


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"draw": [{"key": "link.rate"}]},
            "draw.0.expected one of `values`, `range`, `moment` and `points`",
        ),
        ({"draw": [{"key": "link.rate", "values": [1], "weights": [1, 2]}]}, "as many `weights`"),
        ({"draw": [{"key": "link.rate", "range": {"from": 2, "to": 1}}]}, "`to` not below `from`"),
        ({"draw": [{"key": "link.rate", "values": ["much"]}]}, "where link.rate = much was drawn"),
        ({"draw": [{"key": "link.speed", "values": [1]}]}, "speed"),
        ({"draw": {"key": "link.rate"}}, "draw: expected [[draw]], a list of tables"),
        ({"draw": [], "flow": [{"cc": "cubic"}]}, 'give a [[flow]] cc = "policy"'),
        ({"draw": [], "flow": [{"cc": "policy"}] * 2}, "skyhop_lab.gym.Agents"),
    ],
)
def test_an_invalid_world_is_an_error_of_one_line(changed: dict[str, Any], message: str) -> None:
    from skyhop_lab import gym

    with pytest.raises(InputError) as error:
        gym.Environment({**WORLD, **changed}, "astraea").reset(seed=1)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_cards_and_rewards_are_refused(tmp_path: Path) -> None:
    from skyhop_lab import gym

    with pytest.raises(InputError, match=r"there is no reward `fame`; expected astraea, leo"):
        gym.Environment(WORLD, "astraea", "fame")
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        gym.Environment(WORLD, tmp_path / "nowhere.toml")
    (tmp_path / "world.toml").write_text("[path", "utf-8")
    with pytest.raises(InputError, match="is no TOML"):
        gym.Environment(tmp_path / "world.toml", "astraea")


def test_moments_are_drawn_by_steps() -> None:
    from skyhop_lab.gym.world import Drawing

    drawing = Drawing.model_validate(
        {
            "key": "path.start",
            "moment": {
                "from": "2025-03-20T12:00:00Z",
                "to": "2025-03-20T13:00:00Z",
                "step": "20 min",
            },
        }
    )
    generator = np.random.default_rng(1)
    drawn = {drawing.draw(generator)[0] for _ in range(100)}
    assert drawn == {f"2025-03-20T{time}:00Z" for time in ("12:00", "12:20", "12:40", "13:00")}
