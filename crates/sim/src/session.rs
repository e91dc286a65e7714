//! A run that stops wherever somebody outside has to decide.

use std::fmt;
use std::sync::Arc;

use skyhop_cc::{CcError, Controller, Setup};
use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_units::{Bytes, Instant};

use crate::flow::Kind;
use crate::network::Network;
use crate::{network, size};

/// Who decides for some of a run's flows while it waits.
pub trait Outside: fmt::Debug + Send + Sync {
    /// The congestion control of a connection of the flow with this id; `None`: the flow's own.
    fn make(&self, flow: u32, setup: &Setup<'_>) -> Option<Result<Controller, CcError>>;

    /// Whether somebody has asked, and waits for an answer.
    fn is_asked(&self) -> bool;
}

/// A run in virtual time that stops at each question to somebody outside, and records nothing: whoever answers sees to that.
pub struct Session {
    network: Network,
    end: Instant,
    /// The network's flows in the order of their ids.
    by_id: Vec<usize>,
    outside: Arc<dyn Outside>,
}

impl Session {
    /// Begins one.
    ///
    /// # Errors
    /// What a run is refused for.
    pub fn new(experiment: &Experiment, outside: Arc<dyn Outside>) -> Result<Self, Unsupported> {
        size::check(experiment)?;
        let network = network(experiment, Some(Arc::clone(&outside)))?;
        let mut by_id: Vec<usize> = (0..network.flows.len()).collect();
        by_id.sort_by_key(|index| network.flows[*index].plan.id);
        Ok(Self { network, end: Instant::START + experiment.duration, by_id, outside })
    }

    /// Goes on to the next question; false: there is none until the run's end.
    pub fn advance(&mut self) -> bool {
        loop {
            if self.outside.is_asked() {
                return true;
            }
            let progress = self.network.run_until(self.end);
            self.network.events.clear();
            self.network.marked.clear();
            if progress.is_break() {
                return false;
            }
        }
    }

    /// What each flow over TCP has brought to its receiver so far, in the order of ids; 0 for others.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.by_id.iter().map(|index| match &self.network.flows[*index].kind {
            Kind::Tcp(conversation) => conversation.counted().received,
            Kind::Udp(_) => Bytes::ZERO,
        })
    }

    /// Whether the flow at this place, in the order of ids, has completed a transfer with an end.
    pub fn is_complete(&self, place: usize) -> bool {
        match &self.network.flows[self.by_id[place]].kind {
            Kind::Tcp(conversation) => conversation.completed().is_some(),
            Kind::Udp(_) => false,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("end", &self.end).finish_non_exhaustive()
    }
}
