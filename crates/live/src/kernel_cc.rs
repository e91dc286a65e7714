//! The congestion controls of a run in the kernel: its own where it has one, else ours, loaded for the
//! run's time.
//!
//! What is loaded here is held by the engine's process and by nothing else: however that ends, the
//! kernel forgets it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use skyhop_cc::Module;
use skyhop_ccfile::CcFileError;
use skyhop_experiment::cc_parameters;
use skyhop_kernel::{Held, KernelError, PhaseReader, SignalMap};
use skyhop_model::{CcLanguage, OUR_CC, POLICY_CC, cc_language, our_cc_name, plain_cc_name};

use skyhop_host::error::{Context, HostError};

use skyhop_policyd::{DecisionServer, hold_policy};

/// The modules that a run has loaded, each once for all flows that give it the same parameters.
#[derive(Debug, Default)]
pub(crate) struct LoadedModules {
    /// Who decides for those that others decide for.
    deciding: Vec<DecisionServer>,
    held: BTreeMap<Choice, Held>,
    /// Those that are somebody else's.
    borrowed: BTreeSet<String>,
}

/// A module's name or file, with its parameters.
type Choice = (String, Vec<(String, String)>);

/// Compiles for the kernel what runs in it and is a file of the user's, so that what is wrong with it shows before
/// anything else is done. The engine's processes have it from their parent.
///
/// # Errors
/// What is wrong with a file, or what this machine lacks.
pub(crate) fn compile_files(ccs: &[&str]) -> Result<(), KernelError> {
    for file in ccs.iter().filter(|cc| cc_language(cc) == Some(CcLanguage::C)) {
        let module = skyhop_ccfile::load(Path::new(file))?.module;
        skyhop_kernel::compile(module)?;
    }
    Ok(())
}

impl LoadedModules {
    /// What the kernel calls the scenario's congestion control `cc`, which is loaded if need be.
    pub(crate) fn kernel_name(
        &mut self,
        cc: &str,
        parameters: &BTreeMap<String, serde_json::Value>,
    ) -> Result<String, HostError> {
        let parameters = cc_parameters(cc, parameters);
        if cc_language(cc) == Some(CcLanguage::Card) {
            return self.hold_policy(cc, &parameters);
        }
        match module_for(cc)? {
            Some(module) => self.hold(cc, module, parameters),
            None if parameters.is_empty() => Ok(cc.to_owned()),
            None => Err(HostError::Unsupported(format!(
                "the kernel's {cc} takes no parameters; leave out {cc}.*, or choose cc = \"{OUR_CC}{cc}\""
            ))),
        }
    }

    /// Where the connections of the loaded modules look for announcements.
    pub(crate) fn signal_maps(&self) -> Result<Vec<SignalMap>, HostError> {
        let maps = self.held.values().filter_map(|held| held.signals().transpose());
        maps.map(|map| map.context("cannot announce handovers")).collect()
    }

    /// Where they say what their connections do about announcements.
    pub(crate) fn phase_readers(&self) -> Result<Vec<PhaseReader>, HostError> {
        let readers =
            self.held.values().map(|held| held.phases().context("cannot follow a module"));
        readers.collect()
    }

    /// Who decides for their connections: whoever takes them asks in the end what they have to say.
    pub(crate) fn take_deciding(&mut self) -> Vec<DecisionServer> {
        std::mem::take(&mut self.deciding)
    }

    /// What to know of modules that root has loaded, in a run with announcements.
    pub(crate) fn without_announcements(&self) -> impl Iterator<Item = String> {
        self.borrowed.iter().map(|name| {
            format!(
                "{name} does not receive this run's announcements: only root may pass them to it; \
                 run skyhop as root, which then loads the module for the run"
            )
        })
    }

    /// `cc/policy.c` with who decides for it: one for all flows with this card and these parameters.
    fn hold_policy(
        &mut self,
        card: &str,
        parameters: &[(String, String)],
    ) -> Result<String, HostError> {
        let refused = |error: CcFileError| HostError::of_congestion_control(card, &error.into());
        let loaded = skyhop_ccfile::load_policy(Path::new(card)).map_err(refused)?;
        let choice = (card.to_owned(), loaded.parameters(parameters));
        if let Some(held) = self.held.get(&choice) {
            return Ok(held.kernel_name().to_owned());
        }
        let (held, deciding) = hold_policy(card, &loaded.policy, &choice.1, None)?;
        self.deciding.push(deciding);
        let name = held.kernel_name().to_owned();
        self.held.insert(choice, held);
        Ok(name)
    }

    fn hold(
        &mut self,
        cc: &str,
        module: &'static Module,
        parameters: Vec<(String, String)>,
    ) -> Result<String, HostError> {
        let choice = (module.file().unwrap_or(module.name()).to_owned(), parameters);
        if let Some(held) = self.held.get(&choice) {
            return Ok(held.kernel_name().to_owned());
        }
        let given: Vec<(&str, &str)> =
            choice.1.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match skyhop_kernel::hold(module, &given) {
            Ok(held) => {
                let name = held.kernel_name().to_owned();
                self.held.insert(choice, held);
                Ok(name)
            }
            // Root may have loaded it for everybody.
            Err(error @ KernelError::NotRoot) => match skyhop_kernel::loaded_name(module) {
                Some(name) if choice.1.is_empty() => {
                    self.borrowed.insert(name.clone());
                    Ok(name)
                }
                _ => Err(HostError::of_congestion_control(cc, &error)),
            },
            Err(error) => Err(HostError::of_congestion_control(cc, &error)),
        }
    }
}

/// Which of ours `cc` means; `None`: the kernel's own, or what the kernel may know and we do not.
fn module_for(cc: &str) -> Result<Option<&'static Module>, HostError> {
    if cc_language(cc).is_some() {
        let module = Module::find(cc).map_err(KernelError::from);
        return module.map(Some).map_err(|error| HostError::of_congestion_control(cc, &error));
    }
    if let Some(name) = our_cc_name(cc) {
        let module = Module::find(name).map_err(KernelError::from);
        return module.map(Some).map_err(|error| HostError::of_congestion_control(cc, &error));
    }
    let own =
        skyhop_kernel::has_own(cc).map_err(|error| HostError::of_congestion_control(cc, &error))?;
    Ok(if own { None } else { Module::find(cc).ok() })
}

/// Whether connections with the scenario's congestion control `cc` are paced by it.
pub(crate) fn paces(cc: &str) -> bool {
    let name =
        if cc_language(cc) == Some(CcLanguage::Card) { POLICY_CC } else { plain_cc_name(cc) };
    Module::find(name).map_or(name.starts_with("bbr"), Module::has_cong_control)
}
