//! What the kernel's own build makes a module of (cc/kernel_module.h).

use std::path::Path;

use sha2::{Digest as _, Sha256};
use skyhop_cc::Module;
use skyhop_model::{CcLanguage, POLICY_CC, cc_language, plain_cc_name};

use crate::error::CcFileError;
use crate::headers;
use crate::load::load;
use crate::sources::{Sources, hex};

/// A congestion control in C for the kernel's own build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelModuleSource {
    /// The module's name ([`kernel_module_name`]).
    pub name: String,
    /// What messages call it.
    pub origin: String,
    /// What is to be compiled, with skyhop's headers at hand.
    pub text: String,
    /// Of everything that it is made of.
    pub digest: String,
}

/// What a module is called where the kernel's own build makes one of its file, and its file in /proc: no two files share
/// a name.
pub fn kernel_module_name(module: &Module) -> String {
    let digest = |file: &str| format!("_{}", &hex(&Sha256::digest(file))[..8]);
    format!("skyhop_{}{}", module.name(), module.file().map_or_else(String::new, digest))
}

/// What to compile of "satcp", "skyhop:satcp", a policy's card or a file of the user's, which is compiled natively first, so that what
/// is wrong with it is said in the words of other runs. `None`: it is neither one of ours nor a file in C.
///
/// # Errors
/// What is wrong with the file, or what this machine lacks.
pub fn kernel_module_source(cc: &str) -> Result<Option<KernelModuleSource>, CcFileError> {
    match cc_language(cc) {
        Some(CcLanguage::C) => {}
        Some(CcLanguage::Python) => return Ok(None),
        // Whoever decides stands beside it.
        Some(CcLanguage::Card) => return Ok(own_source(POLICY_CC)),
        None => return Ok(own_source(plain_cc_name(cc))),
    }
    let loaded = load(Path::new(cc))?;
    let file = loaded.sources.file().to_owned();
    Ok(Some(KernelModuleSource {
        name: kernel_module_name(loaded.module),
        text: format!("#include \"{file}\"\n"),
        digest: digest(&format!("{:?}", Sources::digests(&loaded.sources))),
        origin: file,
    }))
}

fn own_source(name: &str) -> Option<KernelModuleSource> {
    let module = Module::find(name).ok()?;
    let text = headers::example(name)?;
    Some(KernelModuleSource {
        name: kernel_module_name(module),
        origin: module.origin(),
        text: text.to_owned(),
        digest: digest(text),
    })
}

fn digest(of: &str) -> String {
    hex(&Sha256::digest(format!("{}\n{of}", *headers::DIGEST)))
}
