//! Several episodes side by side.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use skyhop_experiment::Experiment;
use skyhop_policy::Card;

use crate::episode::{Ended, Episode};
use crate::error::GymError;
use crate::rewards::Reward;

/// Episodes that go on side by side, each in a place of its own, on as many threads as are wanted.
#[derive(Debug)]
pub struct Episodes {
    card: Arc<Card>,
    reward: Reward,
    threads: NonZero<usize>,
    places: Vec<Option<Episode>>,
}

impl Episodes {
    /// So many places, in which nothing goes on yet.
    pub fn new(card: Card, reward: Reward, places: usize, threads: NonZero<usize>) -> Self {
        let places = (0..places).map(|_| None).collect();
        Self { card: Arc::new(card), reward, threads, places }
    }

    /// What agents see and do.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// What goes on in each place.
    pub fn places(&self) -> &[Option<Episode>] {
        &self.places
    }

    /// Begins episodes: in which place, and of what. An error leaves all places as they were.
    ///
    /// # Errors
    /// What [`Episode::begin`] says of the first that cannot begin.
    ///
    /// # Panics
    /// There is no such place.
    pub fn begin(&mut self, begun: Vec<(usize, Experiment)>) -> Result<(), GymError> {
        let (card, reward) = (&self.card, self.reward);
        let mut new: Vec<_> =
            begun.into_iter().map(|(place, of)| (place, Some(of), None)).collect();
        side_by_side(&mut new, self.threads, |(_, experiment, episode)| {
            *episode = experiment.take().map(|of| Episode::begin(of, card, reward));
        });
        let begun = new.into_iter().filter_map(|(place, _, episode)| Some((place, episode?)));
        let begun: Vec<_> =
            begun.map(|(place, episode)| Ok((place, episode?))).collect::<Result<_, GymError>>()?;
        for (place, episode) in begun {
            self.places[place] = Some(episode);
        }
        Ok(())
    }

    /// Answers each place's question with its output; where nothing goes on, nothing happens.
    ///
    /// # Panics
    /// There are more or fewer outputs than places.
    pub fn step(&mut self, outputs: &[f64]) {
        assert_eq!(outputs.len(), self.places.len(), "an output for each place");
        let mut moves: Vec<_> = (self.places.iter_mut().zip(outputs))
            .filter_map(|(episode, output)| Some((episode.as_mut()?, *output)))
            .filter(|(episode, _)| episode.last().ended == Ended::Not)
            .collect();
        side_by_side(&mut moves, self.threads, |(episode, output)| {
            episode.step(*output);
        });
    }
}

/// Does something with each, on so many threads; who is done with one takes the next, as some take much longer.
fn side_by_side<T: Send>(all: &mut [T], threads: NonZero<usize>, work: impl Fn(&mut T) + Sync) {
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
