//! Several episodes that run in parallel.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use skyhop_experiment::Experiment;
use skyhop_policy::Card;

use crate::episode::{Episode, EpisodeStatus};
use crate::error::GymError;
use crate::rewards::Reward;

/// Episodes that run in parallel, each in its own slot, on a given number of threads.
#[derive(Debug)]
pub struct Episodes {
    card: Arc<Card>,
    reward: Reward,
    threads: NonZero<usize>,
    slots: Vec<Option<Episode>>,
}

impl Episodes {
    /// Create empty slots, without an episode in any of them.
    pub fn new(card: Card, reward: Reward, slots: usize, threads: NonZero<usize>) -> Self {
        let slots = (0..slots).map(|_| None).collect();
        Self { card: Arc::new(card), reward, threads, slots }
    }

    /// Card that defines the agents' observations and actions.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Episode of each slot; `None` in an empty slot.
    pub fn slots(&self) -> &[Option<Episode>] {
        &self.slots
    }

    /// Begin an episode of each experiment, in the slot with the given index. An error leaves all slots unchanged.
    ///
    /// # Errors
    /// The error of [`Episode::begin`] for the first experiment that cannot begin.
    ///
    /// # Panics
    /// A slot's index is out of range.
    pub fn begin(&mut self, begun: Vec<(usize, Experiment)>) -> Result<(), GymError> {
        let (card, reward) = (&self.card, self.reward);
        let mut new: Vec<_> = begun.into_iter().map(|(slot, of)| (slot, Some(of), None)).collect();
        for_each_parallel(&mut new, self.threads, |(_, experiment, episode)| {
            *episode = experiment.take().map(|of| Episode::begin(of, card, reward));
        });
        let begun = new.into_iter().filter_map(|(slot, _, episode)| Some((slot, episode?)));
        let begun: Vec<_> =
            begun.map(|(slot, episode)| Ok((slot, episode?))).collect::<Result<_, GymError>>()?;
        for (slot, episode) in begun {
            self.slots[slot] = Some(episode);
        }
        Ok(())
    }

    /// Answer the question of each slot with its output; slots without a running episode ignore theirs.
    ///
    /// # Panics
    /// The number of outputs differs from the number of slots.
    pub fn step(&mut self, outputs: &[f64]) {
        assert_eq!(outputs.len(), self.slots.len(), "an output for each slot");
        let mut moves: Vec<_> = (self.slots.iter_mut().zip(outputs))
            .filter_map(|(episode, output)| Some((episode.as_mut()?, *output)))
            .filter(|(episode, _)| episode.last_step().status == EpisodeStatus::Running)
            .collect();
        for_each_parallel(&mut moves, self.threads, |(episode, output)| {
            episode.step(*output);
        });
    }
}

/// Call `work` on each item, on `threads` threads. Each thread takes the next item when it is free, because some items
/// take much longer than others.
fn for_each_parallel<T: Send>(
    all: &mut [T],
    threads: NonZero<usize>,
    work: impl Fn(&mut T) + Sync,
) {
    let helpers = threads.get().min(all.len()).saturating_sub(1);
    let left = Mutex::new(all.iter_mut());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_off = || {
        while let Some(one) = next() {
            work(one);
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(work_off);
        }
        work_off();
    });
}
