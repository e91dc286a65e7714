//! What stands in for `bpf` where skyhop was built without libbpf: nothing can be loaded.

use std::convert::Infallible;
use std::time::Duration;

use skyhop_cc::{Decision, Handover, Module, Report};

use crate::{CALLER, KernelError, Loaded, ProgramReport, Scope, Told, Unloaded};

/// A registration; there is none.
#[derive(Debug)]
pub struct Held(Infallible);

impl Held {
    /// Never called.
    pub fn kernel_name(&self) -> &str {
        match self.0 {}
    }

    /// Never called.
    pub fn signals(&self) -> Option<&SignalMap> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn phases(&self) -> Result<PhaseReader, KernelError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        match self.0 {}
    }
}

/// Where connections report; there is no such place.
#[derive(Debug)]
pub struct DecisionMaps(Infallible);

impl DecisionMaps {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read(self) -> Result<ReportReader, KernelError> {
        match self.0 {}
    }
}

/// A reader of reports; there is none.
#[derive(Debug)]
pub struct ReportReader(Infallible);

impl ReportReader {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn wait(&self, _: Duration) -> Result<Vec<Report>, KernelError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn decide(&self, _: u64, _: &Decision) -> Result<(), KernelError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn forget(&self, _: u64) -> Result<(), KernelError> {
        match self.0 {}
    }
}

/// A reader of what connections report; there is none.
#[derive(Debug)]
pub struct PhaseReader(Infallible);

impl PhaseReader {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read(&self) -> Result<Vec<Told>, KernelError> {
        match self.0 {}
    }
}

/// What the connections of a loaded module tell.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn pinned_phases(_: &str) -> Result<PhaseReader, KernelError> {
    Err(KernelError::NoLibbpf)
}

/// A map of announcements; there is none.
#[derive(Debug)]
pub struct SignalMap(Infallible);

impl SignalMap {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn announce(&self, _: Scope, _: &Handover) -> Result<(), KernelError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> Result<Self, KernelError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn withdraw(&self, _: Scope) -> Result<(), KernelError> {
        match self.0 {}
    }
}

/// Asks the verifier.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn check(module: &'static Module) -> Result<Vec<ProgramReport>, KernelError> {
    CALLER.accept(module)?;
    Err(KernelError::NoLibbpf)
}

/// Loads a module until it is unloaded.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn load(module: &'static Module, _: &[(&str, &str)]) -> Result<Loaded, KernelError> {
    CALLER.accept(module)?;
    Err(KernelError::NoLibbpf)
}

/// Registers a module for as long as the caller lives.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn hold(module: &'static Module, _: &[(&str, &str)]) -> Result<Held, KernelError> {
    CALLER.accept(module)?;
    Err(KernelError::NoLibbpf)
}

/// Registers a module likewise, under a chosen name.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn hold_as(
    module: &'static Module,
    parameters: &[(&str, &str)],
    _: &str,
) -> Result<Held, KernelError> {
    hold(module, parameters)
}

/// Whether a program has registered this name through BPF; nobody can tell.
pub fn is_from_bpf(_: &str) -> bool {
    false
}

/// Unloads a module.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn unload(_: &str) -> Result<Unloaded, KernelError> {
    Err(KernelError::NoLibbpf)
}

/// The maps of the modules that are loaded.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn pinned_signal_maps() -> Result<Vec<(String, SignalMap)>, KernelError> {
    Err(KernelError::NoLibbpf)
}
