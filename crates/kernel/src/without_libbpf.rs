//! Replacement of `bpf` in builds without libbpf: every operation returns [`KernelError::NoLibbpf`].

use std::convert::Infallible;
use std::time::Duration;

use skyhop_cc::{Decision, Handover, Module, Report};

use crate::{CALLER, KernelError, Loaded, PhaseEvent, ProgramReport, Scope, Unloaded};

/// Registration of a module; never constructed.
#[derive(Debug)]
pub struct BpfRegistration(Infallible);

impl BpfRegistration {
    /// Never called, because no value of this type exists.
    pub fn kernel_name(&self) -> &str {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    pub fn signals(&self) -> Option<&SignalMap> {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn phases(&self) -> Result<PhaseReader, KernelError> {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        match self.0 {}
    }
}

/// Maps of reports and decisions; never constructed.
#[derive(Debug)]
pub struct DecisionMaps(Infallible);

impl DecisionMaps {
    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn read(self) -> Result<ReportReader, KernelError> {
        match self.0 {}
    }
}

/// Reader of reports; never constructed.
#[derive(Debug)]
pub struct ReportReader(Infallible);

impl ReportReader {
    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn wait(&self, _: Duration) -> Result<Vec<Report>, KernelError> {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn decide(&self, _: u64, _: &Decision) -> Result<(), KernelError> {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn forget(&self, _: u64) -> Result<(), KernelError> {
        match self.0 {}
    }
}

/// Reader of phases; never constructed.
#[derive(Debug)]
pub struct PhaseReader(Infallible);

impl PhaseReader {
    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn read(&self) -> Result<Vec<PhaseEvent>, KernelError> {
        match self.0 {}
    }
}

/// Always fail: phases cannot be read without libbpf.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn pinned_phases(_: &str) -> Result<PhaseReader, KernelError> {
    Err(KernelError::NoLibbpf)
}

/// Map of announcements; never constructed.
#[derive(Debug)]
pub struct SignalMap(Infallible);

impl SignalMap {
    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn announce(&self, _: Scope, _: &Handover) -> Result<(), KernelError> {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn try_clone(&self) -> Result<Self, KernelError> {
        match self.0 {}
    }

    /// Never called, because no value of this type exists.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn withdraw(&self, _: Scope) -> Result<(), KernelError> {
        match self.0 {}
    }
}

/// Check the module's hooks, then fail: the verifier cannot be run without libbpf.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn check(module: &'static Module) -> Result<Vec<ProgramReport>, KernelError> {
    CALLER.accept(module)?;
    Err(KernelError::NoLibbpf)
}

/// Check the module's hooks, then fail: modules cannot be loaded without libbpf.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn load(module: &'static Module, _: &[(&str, &str)]) -> Result<Loaded, KernelError> {
    CALLER.accept(module)?;
    Err(KernelError::NoLibbpf)
}

/// Check the module's hooks, then fail: modules cannot be registered without libbpf.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn register(
    module: &'static Module,
    _: &[(&str, &str)],
) -> Result<BpfRegistration, KernelError> {
    CALLER.accept(module)?;
    Err(KernelError::NoLibbpf)
}

/// Check the module's hooks, then fail, as [`register`] does.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn register_as(
    module: &'static Module,
    parameters: &[(&str, &str)],
    _: &str,
) -> Result<BpfRegistration, KernelError> {
    register(module, parameters)
}

/// Whether a program has registered this name through BPF. Without libbpf this is unknown, and the
/// result is false.
pub fn is_from_bpf(_: &str) -> bool {
    false
}

/// Always fail: modules cannot be unloaded without libbpf.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn unload(_: &str) -> Result<Unloaded, KernelError> {
    Err(KernelError::NoLibbpf)
}

/// Always fail: the maps of loaded modules cannot be opened without libbpf.
///
/// # Errors
/// [`KernelError::NoLibbpf`].
pub fn pinned_signal_maps() -> Result<Vec<(String, SignalMap)>, KernelError> {
    Err(KernelError::NoLibbpf)
}
