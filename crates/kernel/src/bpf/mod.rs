//! Loading with libbpf.

mod decisions;
mod features;
mod log;
mod object;
mod phases;
mod registration;
mod ring;
mod signals;

use skyhop_cc::Module;
use skyhop_model::cc_language;

use crate::entry::unused_name;
use crate::error::KernelError;
use crate::names::{held_part, module_of, names_in_kernel};
use crate::pins::{self, Pin};
use crate::{CALLER, Loaded, ProgramReport, Unloaded};

use features::Features;
use object::Prepared;

pub use decisions::{DecisionMaps, ReportReader};
pub use phases::{PhaseReader, pinned_phases};
pub use registration::{Held, is_from_bpf};
pub use signals::{SignalMap, pinned_signal_maps};

/// Has the verifier look at a module, and registers nothing.
///
/// # Errors
/// [`KernelError::Refused`], a hook that nobody calls, or what this machine or this build of skyhop lacks.
pub fn check(module: &'static Module) -> Result<Vec<ProgramReport>, KernelError> {
    CALLER.accept(module)?;
    let features = Features::probe()?;
    let name = registration::persistent_name(module)?;
    Prepared::new(module, &[], &name, features)?.load()?.reports()
}

/// Loads a module until it is unloaded. `parameters` are names and texts as in the scenario.
///
/// # Errors
/// [`KernelError::AlreadyLoaded`], wrong parameters, a hook that nobody calls, or what this machine or this build of skyhop lacks.
pub fn load(module: &'static Module, parameters: &[(&str, &str)]) -> Result<Loaded, KernelError> {
    CALLER.accept(module)?;
    let features = Features::probe()?;
    let mounted_bpffs = pins::ensure_bpffs()?;
    let _alone = pins::lock()?;
    if let Some(pin) = registration::pin_of(module.name()).filter(Pin::is_whole) {
        let (module, kernel_name) = (module.name().to_owned(), pin.kernel_name);
        return Err(KernelError::AlreadyLoaded { module, kernel_name });
    }
    let kernel_name = registration::persistent_name(module)?;
    let loaded = Prepared::new(module, parameters, &kernel_name, features)?.load()?;
    registration::pin(loaded, &Pin::of(&kernel_name))?;
    Ok(Loaded { kernel_name, mounted_bpffs })
}

/// Registers a module under a name of its own for as long as the caller lives.
///
/// # Errors
/// Wrong parameters, or what this machine or this build of skyhop lacks.
pub fn hold(module: &'static Module, parameters: &[(&str, &str)]) -> Result<Held, KernelError> {
    hold_with(module, parameters, Features::probe()?)
}

/// The same under a name that the caller has chosen.
///
/// # Errors
/// Those of [`hold`].
pub fn hold_as(
    module: &'static Module,
    parameters: &[(&str, &str)],
    kernel_name: &str,
) -> Result<Held, KernelError> {
    register(module, parameters, kernel_name.to_owned(), Features::probe()?)
}

fn hold_with(
    module: &'static Module,
    parameters: &[(&str, &str)],
    features: Features,
) -> Result<Held, KernelError> {
    register(module, parameters, unused_name(module)?, features)
}

fn register(
    module: &'static Module,
    parameters: &[(&str, &str)],
    kernel_name: String,
    features: Features,
) -> Result<Held, KernelError> {
    let loaded = Prepared::new(module, parameters, &kernel_name, features)?.load()?;
    registration::hold(loaded, kernel_name)
}

/// Unloads what [`load`] loaded, or what a holder on a kernel without links left behind, by any of its
/// names. Sockets that use it keep it until they are closed.
///
/// # Errors
/// [`KernelError::NotLoaded`], or the caller may not.
pub fn unload(name: &str) -> Result<Unloaded, KernelError> {
    let names = names_in_kernel(name);
    let is_there = registration::pin_among(&names).is_some() || held_part(&names[0]).is_some();
    if !is_there && cc_language(name).is_none() {
        module_of(name)?;
    }
    Features::may_load()?;
    let kernel_name = registration::unregister(&names)?;
    let census = crate::sockets_by_cc().ok();
    let sockets = census.map(|census| census.get(&kernel_name).copied().unwrap_or(0));
    Ok(Unloaded { kernel_name, sockets })
}

#[cfg(test)]
mod tests;
