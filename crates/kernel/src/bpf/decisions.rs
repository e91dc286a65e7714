//! What the connections of a registered module report, and what is decided for them.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use skyhop_cc::{Decision, MapValue, Report};

use super::ring::Ring;
use crate::error::{Context, KernelError};

/// Where a module's connections report, and look for decisions. It may be opened in one thread and read in another.
#[derive(Debug)]
pub struct DecisionMaps {
    reports: MapHandle,
    decisions: MapHandle,
}

impl DecisionMaps {
    pub(super) fn new(reports: MapHandle, decisions: MapHandle) -> Self {
        Self { reports, decisions }
    }

    /// The same maps once more.
    ///
    /// # Errors
    /// Too many descriptors are open.
    pub(super) fn try_clone(&self) -> Result<Self, KernelError> {
        let clone = |map| MapHandle::try_from(map).context("cannot share a map of decisions");
        Ok(Self { reports: clone(&self.reports)?, decisions: clone(&self.decisions)? })
    }

    /// Begins to read. There may be one reader of a module at a time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(self) -> Result<ReportReader, KernelError> {
        let reports = Ring::new(&self.reports, Report::from_bytes)?;
        Ok(ReportReader { reports, decisions: self.decisions })
    }
}

/// Reads what a module's connections report, and decides.
#[derive(Debug)]
pub struct ReportReader {
    reports: Ring<Report>,
    decisions: MapHandle,
}

impl ReportReader {
    /// What was reported since the last call, in its order; waits for it as long as `timeout`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<Report>, KernelError> {
        self.reports.wait(timeout)
    }

    /// Decides for the connection that has reported with this id.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn decide(&self, id: u64, decision: &Decision) -> Result<(), KernelError> {
        let (key, value) = (id.to_ne_bytes(), decision.as_bytes());
        self.decisions.update(&key, value, MapFlags::ANY).context("cannot write a decision")
    }

    /// Forgets what was decided for a connection that is gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn forget(&self, id: u64) -> Result<(), KernelError> {
        match self.decisions.delete(&id.to_ne_bytes()) {
            // Nothing was decided, or it has given way to others.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            deleted => deleted.context("cannot withdraw a decision"),
        }
    }
}
