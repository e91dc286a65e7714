//! Python classes for reinforcement-learning episodes.

use std::num::NonZero;
use std::sync::{Mutex, MutexGuard};

use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use skyhop_ccfile::read_card;
use skyhop_gym::{Episode, Episodes, FIGURES, REWARDS, Reward};
use skyhop_policy::{Memory, Policy};

use crate::errors::{Fallible, input_error, run_error};
use crate::experiment::PyExperiment;

/// List the rewards: name and description of each.
#[pyfunction]
pub(crate) fn list_rewards() -> Vec<(&'static str, &'static str)> {
    REWARDS.iter().map(|reward| (reward.name, reward.about)).collect()
}

/// Parallel episodes, one per slot.
#[pyclass(name = "Episodes", frozen)]
pub(crate) struct PyEpisodes(Mutex<Episodes>);

#[pymethods]
impl PyEpisodes {
    /// Create slots for episodes. `card` is a file or the name of a card that comes with skyhop. It defines the
    /// agents' observations and actions; its network is ignored.
    #[new]
    fn new(card: &str, reward: &str, slots: usize, threads: usize) -> Fallible<Self> {
        let card = read_card(card)?;
        let reward = Reward::named(reward).map_err(|error| input_error(&error.to_string()))?;
        let threads = NonZero::new(threads).ok_or_else(|| input_error("expected a thread"))?;
        Ok(Self(Mutex::new(Episodes::new(card, reward, slots, threads))))
    }

    /// Number of values in an agent's observation.
    fn inputs(&self) -> Fallible<usize> {
        Ok(self.episodes()?.card().inputs())
    }

    /// Lower and upper bound of an agent's output.
    fn bounds(&self) -> Fallible<[f64; 2]> {
        Ok(self.episodes()?.card().network.output)
    }

    /// Number of agents of the episode in a slot.
    fn agents(&self, slot: usize) -> Fallible<usize> {
        Ok(self.episodes()?.slots()[slot].as_ref().map_or(0, Episode::agents))
    }

    /// Begin episodes; `begun` are pairs of a slot and the experiment to run in it.
    fn begin(&self, py: Python<'_>, begun: Vec<(usize, PyRef<'_, PyExperiment>)>) -> Fallible<()> {
        let begun: Vec<_> =
            begun.into_iter().map(|(slot, of)| (slot, of.experiment.clone())).collect();
        let episodes = &mut *self.episodes()?;
        let begun = py.detach(|| episodes.begin(begun));
        begun.map_err(|error| input_error(&error.to_string()))
    }

    /// Step all episodes with one output per slot.
    fn step(&self, py: Python<'_>, outputs: PyBuffer<f64>) -> Fallible<()> {
        let outputs = outputs.to_vec(py)?;
        let episodes = &mut *self.episodes()?;
        if outputs.len() != episodes.slots().len() {
            return Err(input_error("expected an output for each slot"));
        }
        py.detach(|| episodes.step(&outputs));
        Ok(())
    }

    /// Write for each slot the observation (slots x inputs), the reward, the status of the episode (0: running, 1: complete,
    /// 2: out of time), the agent's number, and the interval's figures (slots x figures) to the buffers.
    fn read(
        &self,
        py: Python<'_>,
        observations: PyBuffer<f32>,
        rewards: PyBuffer<f64>,
        ended: PyBuffer<u8>,
        agents: PyBuffer<i32>,
        figures: PyBuffer<f64>,
    ) -> Fallible<()> {
        let episodes = self.episodes()?;
        let slots = || episodes.slots().iter().map(Option::as_ref);
        let nothing = vec![0.0; episodes.card().inputs()];
        let all: Vec<f32> = slots()
            .flat_map(|one| one.map_or(&nothing[..], Episode::observation))
            .copied()
            .collect();
        write(py, &observations, &all)?;
        let last = || slots().map(|one| one.map(Episode::last_step));
        let of = |step: Option<f64>| step.unwrap_or(0.0);
        write(py, &rewards, &last().map(|one| of(one.map(|one| one.reward))).collect::<Vec<_>>())?;
        let has_ended = last().map(|one| one.map_or(0, |one| one.status as u8));
        write(py, &ended, &has_ended.collect::<Vec<_>>())?;
        let who = last().map(|one| one.map_or(0, |one| one.agent as i32));
        write(py, &agents, &who.collect::<Vec<_>>())?;
        let known = last().flat_map(|one| one.map_or([0.0; FIGURES.len()], |one| one.figures));
        write(py, &figures, &known.collect::<Vec<_>>())
    }
}

impl PyEpisodes {
    fn episodes(&self) -> Fallible<MutexGuard<'_, Episodes>> {
        self.0.lock().map_err(|error| run_error(&error.to_string()))
    }
}

/// Policy for one connection, with its recurrent memory.
#[pyclass(name = "Answering", frozen)]
pub(crate) struct PyAnswering(Mutex<(Policy, Memory)>);

#[pymethods]
impl PyAnswering {
    /// Load the policy of `card`, which is a file or the name of a card that comes with skyhop.
    #[new]
    fn new(py: Python<'_>, card: &str) -> Fallible<Self> {
        let loaded = py.detach(|| skyhop_ccfile::load_policy(&skyhop_ccfile::card_path(card)))?;
        let memory = Memory::new(&loaded.policy.card);
        Ok(Self(Mutex::new((loaded.policy, memory))))
    }

    /// Compute the output for an observation; NaN if there is no decision.
    fn answer(&self, py: Python<'_>, observation: PyBuffer<f32>) -> Fallible<f64> {
        let observation = observation.to_vec(py)?;
        let (policy, memory) =
            &mut *self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        if observation.len() != policy.card.inputs() {
            return Err(input_error(&format!("expected {} numbers", policy.card.inputs())));
        }
        Ok(policy.answer(&observation, memory).unwrap_or(f64::NAN))
    }

    /// Names of the features of one step.
    fn features(&self) -> Fallible<Vec<String>> {
        let answering = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        let features = answering.0.card.observation.features.iter();
        Ok(features.map(|feature| feature.name.clone()).collect())
    }
}

fn write<T: Element + Copy>(py: Python<'_>, into: &PyBuffer<T>, values: &[T]) -> Fallible<()> {
    Ok(into.copy_from_slice(py, values)?)
}
