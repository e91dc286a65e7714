//! Sources for building a congestion control as a kernel module (cc/kernel_module.h).

use std::path::Path;

use sha2::{Digest as _, Sha256};
use skyhop_cc::Module;
use skyhop_model::{CcLanguage, POLICY_CC, cc_language, plain_cc_name};

use crate::error::CcFileError;
use crate::headers;
use crate::load::load;
use crate::sources::{Sources, hex};

/// Source of a congestion control for the kernel's build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelModuleSource {
    /// Name of the module ([`kernel_module_name`]).
    pub name: String,
    /// File name for messages.
    pub origin: String,
    /// C text to compile, with skyhop's headers in the include path.
    pub text: String,
    /// SHA-256 of all files from which the module is built, in hexadecimal.
    pub digest: String,
}

/// Name of the kernel module built from a congestion control, and of its file in /proc; unique for each file.
pub fn kernel_module_name(module: &Module) -> String {
    let digest = |file: &str| format!("_{}", &hex(&Sha256::digest(file))[..8]);
    format!("skyhop_{}{}", module.name(), module.file().map_or_else(String::new, digest))
}

/// Return the source to compile for `cc`: a name such as "satcp" or "skyhop:satcp", a policy's card, or a user's
/// file. A user's file is compiled natively first, so that its errors are reported as in other runs. `None` if `cc`
/// is neither a congestion control of skyhop nor a C file.
///
/// # Errors
/// The file is wrong, or this machine lacks a compiler.
pub fn kernel_module_source(cc: &str) -> Result<Option<KernelModuleSource>, CcFileError> {
    match cc_language(cc) {
        Some(CcLanguage::C) => {}
        Some(CcLanguage::Python) => return Ok(None),
        // A policy runs as cc/policy.c, for which a separate process takes the decisions.
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

fn digest(text: &str) -> String {
    hex(&Sha256::digest(format!("{}\n{text}", *headers::DIGEST)))
}
