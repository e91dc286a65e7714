//! From a file to a module: compiled unless the cache has it, loaded unless this process has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sha2::{Digest as _, Sha256};
use skyhop_cc::{BpfObjects, CcError, Module, bindings};
use skyhop_model::CcLanguage;

use crate::cache::{Workshop, kept};
use crate::compiler::{Compiler, Target};
use crate::crash;
use crate::error::CcFileError;
use crate::headers;
use crate::sources::{Sources, hex};

/// A file of the user's in this process.
#[derive(Debug)]
pub struct Loaded {
    /// What it defines.
    pub module: &'static Module,
    /// The files that it is made of.
    pub sources: Sources,
    /// How it was compiled.
    pub compiled: Compiled,
}

/// How something was compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// What the compiler had to say, though it did it.
    pub messages: String,
    /// Whether it was done just now; else it was in the cache, or loaded.
    pub is_new: bool,
}

/// A module that this process has loaded.
struct Known {
    key: String,
    sources: Sources,
    module: &'static Module,
    messages: String,
    bpf: Option<BpfObjects>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The file may be saved so often while it is compiled.
const ATTEMPTS: usize = 5;

/// Compiles a file in C for this machine and loads it: [`Module::find`] gives it under its whole name from now on. One that
/// has changed since is another module.
///
/// # Errors
/// What is wrong with the file, or what this machine lacks.
pub fn load(file: &Path) -> Result<Loaded, CcFileError> {
    let sources = Sources::read(file)?;
    match sources.language() {
        CcLanguage::C => {}
        CcLanguage::Python => return Err(CcFileError::Python { file: sources.file().to_owned() }),
        CcLanguage::Card => {
            let what = "is a card, which nothing compiles".to_owned();
            return Err(CcFileError::Policy { file: sources.file().to_owned(), what });
        }
    }
    let compiler = Compiler::find(Target::Native, sources.file())?;
    let key = key(&compiler, &sources);
    if let Some(known) = known().iter().find(|known| known.key == key) {
        known.module.make_known();
        let compiled = Compiled { messages: known.messages.clone(), is_new: false };
        return Ok(Loaded { module: known.module, sources, compiled });
    }
    // What the cache holds may be damaged: then it is made again.
    let first = Made::get(sources, &compiler, true)?;
    let (made, library) = match open(&first) {
        Ok(library) => (first, library),
        Err(_) if !first.compiled.is_new => {
            let again = Made::get(first.sources, &compiler, false)?;
            let library = open(&again)?;
            (again, library)
        }
        Err(error) => return Err(error),
    };
    let module = adopt(library, &made.sources)?;
    crash::tell_of(made.sources.file());
    let Made { key, sources, compiled, .. } = made;
    let messages = compiled.messages.clone();
    known().push(Known { key, sources: sources.clone(), module, messages, bpf: None });
    Ok(Loaded { module, sources, compiled })
}

/// A loaded module's file compiled for the kernel.
///
/// # Errors
/// [`CcFileError::Changed`], what is wrong with the file, or what this machine lacks.
pub fn bpf_objects(module: &'static Module) -> Result<BpfObjects, CcFileError> {
    let is_it = |known: &&mut Known| std::ptr::eq(known.module, module);
    let found = known().iter_mut().find(is_it).map(|known| (known.sources.clone(), known.bpf));
    let Some((sources, bpf)) = found else {
        return Err(CcError::NotLoaded { file: module.origin() }.into());
    };
    if let Some(objects) = bpf {
        return Ok(objects);
    }
    let objects = BpfObjects {
        current: object_for(Target::Bpf, &sources)?,
        before_6_10: object_for(Target::BpfBefore6_10, &sources)?,
    };
    if let Some(known) = known().iter_mut().find(is_it) {
        known.bpf = Some(objects);
    }
    Ok(objects)
}

/// What these sources, and no others, are compiled to.
fn object_for(target: Target, sources: &Sources) -> Result<&'static [u8], CcFileError> {
    let file = sources.file().to_owned();
    let made = Made::get(sources.clone(), &Compiler::find(target, &file)?, true)?;
    if made.sources != *sources {
        return Err(CcFileError::Changed { file });
    }
    let bytes = fs::read(&made.object)
        .map_err(|error| CcFileError::Load { file, reason: error.to_string() })?;
    // It is kept with the module, which stays.
    Ok(bytes.leak())
}

/// A file compiled for a target.
struct Made {
    key: String,
    sources: Sources,
    object: PathBuf,
    compiled: Compiled,
    /// Where it lies, if not in the cache.
    _workshop: Option<Workshop>,
}

impl Made {
    /// From the cache, if `may_be_kept` and it is there, else compiled.
    fn get(sources: Sources, compiler: &Compiler, may_be_kept: bool) -> Result<Self, CcFileError> {
        let mut sources = sources;
        for _ in 0..ATTEMPTS {
            let key = key(compiler, &sources);
            let [object, messages] = names(&key, compiler.target());
            if let Some(object) = kept(&object).filter(|_| may_be_kept) {
                let said = kept(&messages).and_then(|file| fs::read_to_string(file).ok());
                let compiled = Compiled { messages: said.unwrap_or_default(), is_new: false };
                return Ok(Self { key, sources, object, compiled, _workshop: None });
            }
            let workshop = Workshop::open()?;
            let headers = workshop.headers()?;
            let compilation = compiler.start(&sources, &headers, &workshop.file(&object))?;
            let said = compilation.finish(&sources);
            // What was saved meanwhile may be what was compiled.
            let now = Sources::read(Path::new(sources.file()))?;
            if now != sources {
                sources = now;
                continue;
            }
            let said = said?;
            // First, so that no object is without them.
            if !said.is_empty() && fs::write(workshop.file(&messages), &said).is_ok() {
                workshop.keep(&messages);
            }
            let object = workshop.keep(&object);
            let compiled = Compiled { messages: said, is_new: true };
            return Ok(Self { key, sources, object, compiled, _workshop: Some(workshop) });
        }
        Err(CcFileError::Changed { file: sources.file().to_owned() })
    }
}

/// The names in the cache of what is compiled, and of what the compiler said.
fn names(key: &str, target: Target) -> [String; 2] {
    [format!("{key}.{}", target.ending()), format!("{key}.txt")]
}

/// Names everything that a compiled file depends on.
fn key(compiler: &Compiler, sources: &Sources) -> String {
    let what = format!("{}\n{}\n{:?}", compiler.identity(), *headers::DIGEST, sources.digests());
    hex(&Sha256::digest(format!("{}\n{what}", sources.file())))[..32].to_owned()
}

fn open(made: &Made) -> Result<Library, CcFileError> {
    let file = made.sources.file().to_owned();
    // SAFETY: what runs at this are the initialisers of a C file that the user wants to run.
    unsafe { Library::open(Some(&made.object), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| CcFileError::Load { file, reason: error.to_string() })
}

fn adopt(library: Library, sources: &Sources) -> Result<&'static Module, CcFileError> {
    let file = sources.file();
    // SAFETY: the symbol is an address, which is not used before it is known to be there.
    let symbol = unsafe { library.get::<*const bindings::Module>(b"skyhop_module\0") };
    let Ok(symbol) = symbol else { return Err(CcFileError::NoModule { file: file.to_owned() }) };
    let native = symbol.into_raw().cast_const().cast::<bindings::Module>();
    // It stays: connections may run it as long as the process lives.
    std::mem::forget(library);
    // SAFETY: SKYHOP_MODULE of this skyhop's own header has defined it, and the library stays.
    Ok(unsafe { Module::adopt(file, sources.name(), native, sources.hears()) }?)
}

fn known() -> MutexGuard<'static, Vec<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
