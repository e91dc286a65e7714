from skyhop_lab.gym.agents import Agents as Agents
from skyhop_lab.gym.environment import Environment as Environment
from skyhop_lab.gym.rewards import list_rewards as list_rewards
from skyhop_lab.gym.vector import Environments as Environments
from skyhop_lab.gym.world import World as World
from skyhop_lab.gym.world import read_world as read_world
