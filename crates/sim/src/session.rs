//! Runs that pause at every decision of an external policy.

use std::fmt;
use std::sync::Arc;

use skyhop_cc::{CcError, Controller, Setup};
use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_units::{Bytes, Instant};

use crate::flow::Kind;
use crate::network::Network;
use crate::{network, size};

/// External policy that decides for some of a run's flows while the run waits.
pub trait ExternalPolicy: fmt::Debug + Send + Sync {
    /// Create the congestion control for a connection of the flow with this id; `None` selects the congestion
    /// control that the experiment names for the flow.
    fn controller(&self, flow: u32, setup: &Setup<'_>) -> Option<Result<Controller, CcError>>;

    /// Whether a congestion control has requested a decision that is still missing.
    fn is_pending(&self) -> bool;
}

/// A run in virtual time that pauses at every request for an external decision. The session records nothing; recording
/// is left to the caller.
pub struct Session {
    network: Network,
    end: Instant,
    /// Indices of the network's flows in the order of their ids.
    by_id: Vec<usize>,
    external: Arc<dyn ExternalPolicy>,
}

impl Session {
    /// Start a run at time 0.
    ///
    /// # Errors
    /// Errors of [`Simulator`](crate::Simulator)'s check of the experiment.
    pub fn new(
        experiment: &Experiment,
        external: Arc<dyn ExternalPolicy>,
    ) -> Result<Self, Unsupported> {
        size::check(experiment)?;
        let network = network(experiment, Some(Arc::clone(&external)))?;
        let mut by_id: Vec<usize> = (0..network.flows.len()).collect();
        by_id.sort_by_key(|index| network.flows[*index].plan.id);
        Ok(Self { network, end: Instant::START + experiment.duration, by_id, external })
    }

    /// Run to the next request for a decision; return false if the run has ended without one.
    pub fn advance(&mut self) -> bool {
        loop {
            if self.external.is_pending() {
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

    /// Bytes that each TCP flow has delivered so far, in the order of ids; 0 for other flows.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.by_id.iter().map(|index| match &self.network.flows[*index].kind {
            Kind::Tcp(tcp) => tcp.counters().received,
            Kind::Udp(_) => Bytes::ZERO,
        })
    }

    /// Whether the flow with this index, in the order of ids, has completed a finite transfer.
    pub fn is_complete(&self, index: usize) -> bool {
        match &self.network.flows[self.by_id[index]].kind {
            Kind::Tcp(tcp) => tcp.completed().is_some(),
            Kind::Udp(_) => false,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("end", &self.end).finish_non_exhaustive()
    }
}
