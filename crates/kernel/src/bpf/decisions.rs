//! Reports of a registered module's connections, and decisions for them.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use skyhop_cc::{Decision, MapValue, Report};

use super::ring::Ring;
use crate::error::{Context, KernelError};

/// Maps of a module's reports and decisions. They may be opened in one thread and read in another.
#[derive(Debug)]
pub struct DecisionMaps {
    reports: MapHandle,
    decisions: MapHandle,
}

impl DecisionMaps {
    pub(super) fn new(reports: MapHandle, decisions: MapHandle) -> Self {
        Self { reports, decisions }
    }

    /// Duplicate the handles of the maps.
    ///
    /// # Errors
    /// The process has too many open descriptors.
    pub(super) fn try_clone(&self) -> Result<Self, KernelError> {
        let clone = |map| MapHandle::try_from(map).context("cannot share a map of decisions");
        Ok(Self { reports: clone(&self.reports)?, decisions: clone(&self.decisions)? })
    }

    /// Open the reader. A module may have one reader at a time.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn read(self) -> Result<ReportReader, KernelError> {
        let reports = Ring::new(&self.reports, Report::from_bytes)?;
        Ok(ReportReader { reports, decisions: self.decisions })
    }
}

/// Reader of a module's reports, and writer of decisions.
#[derive(Debug)]
pub struct ReportReader {
    reports: Ring<Report>,
    decisions: MapHandle,
}

impl ReportReader {
    /// Return the reports since the last call, in order; if there are none, wait up to `timeout` for the first.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<Report>, KernelError> {
        self.reports.wait(timeout)
    }

    /// Write the decision for the connection that has reported with this id.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn decide(&self, id: u64, decision: &Decision) -> Result<(), KernelError> {
        let (key, value) = (id.to_ne_bytes(), decision.as_bytes());
        self.decisions.update(&key, value, MapFlags::ANY).context("cannot write a decision")
    }

    /// Remove the decision for a closed connection.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn forget(&self, id: u64) -> Result<(), KernelError> {
        match self.decisions.delete(&id.to_ne_bytes()) {
            // The connection had no decision, or the map has evicted it.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            deleted => deleted.context("cannot withdraw a decision"),
        }
    }
}
