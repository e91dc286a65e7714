//! Loading of a C file as a module. The file is compiled unless the object is cached, and loaded
//! unless this process has already loaded it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sha2::{Digest as _, Sha256};
use skyhop_cc::{BpfObjects, CcError, Module, bindings};
use skyhop_model::CcLanguage;

use crate::cache::{BuildDirectory, cached};
use crate::compiler::{Compiler, Target};
use crate::crash;
use crate::error::CcFileError;
use crate::headers;
use crate::sources::{Sources, hex};

/// User's file loaded into this process.
#[derive(Debug)]
pub struct Loaded {
    /// Module that the file defines.
    pub module: &'static Module,
    /// Source files of the module.
    pub sources: Sources,
    /// Result of the compilation.
    pub compiled: Compiled,
}

/// Result of a compilation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// Warnings of the compiler.
    pub messages: String,
    /// Whether this call compiled the file; false if the object was cached or already loaded.
    pub is_new: bool,
}

/// Entry of a module that this process has loaded.
struct LoadedEntry {
    key: String,
    sources: Sources,
    module: &'static Module,
    messages: String,
    bpf: Option<BpfObjects>,
}

static LOADED: Mutex<Vec<LoadedEntry>> = Mutex::new(Vec::new());

/// Largest number of attempts to compile a file that the user is editing at the same time.
const ATTEMPTS: usize = 5;

/// Compile a C file for this machine and load it. [`Module::find`] then finds it by its absolute path. A changed file
/// becomes a new module.
///
/// # Errors
/// The file is wrong, or this machine lacks a compiler.
pub fn load(file: &Path) -> Result<Loaded, CcFileError> {
    let sources = Sources::read(file)?;
    match sources.language() {
        CcLanguage::C => {}
        CcLanguage::Python => return Err(CcFileError::Python { file: sources.file().to_owned() }),
        CcLanguage::Card => {
            let what = "is a card, which cannot be compiled".to_owned();
            return Err(CcFileError::Policy { file: sources.file().to_owned(), what });
        }
    }
    let compiler = Compiler::find(Target::Native, sources.file())?;
    let key = key(&compiler, &sources);
    if let Some(known) = known().iter().find(|known| known.key == key) {
        known.module.register_file();
        let compiled = Compiled { messages: known.messages.clone(), is_new: false };
        return Ok(Loaded { module: known.module, sources, compiled });
    }
    // A damaged object in the cache is compiled again.
    let first = CompiledObject::get(sources, &compiler, true)?;
    let (object, library) = match open(&first) {
        Ok(library) => (first, library),
        Err(_) if !first.compiled.is_new => {
            let again = CompiledObject::get(first.sources, &compiler, false)?;
            let library = open(&again)?;
            (again, library)
        }
        Err(error) => return Err(error),
    };
    let module = adopt(library, &object.sources)?;
    crash::report_crashes_in(object.sources.file());
    let CompiledObject { key, sources, compiled, .. } = object;
    let messages = compiled.messages.clone();
    known().push(LoadedEntry { key, sources: sources.clone(), module, messages, bpf: None });
    Ok(Loaded { module, sources, compiled })
}

/// Compile a loaded module's file for the kernel's BPF.
///
/// # Errors
/// [`CcFileError::Changed`]; the file is wrong; or this machine lacks clang.
pub fn bpf_objects(module: &'static Module) -> Result<BpfObjects, CcFileError> {
    let matches = |known: &&mut LoadedEntry| std::ptr::eq(known.module, module);
    let found = known().iter_mut().find(matches).map(|known| (known.sources.clone(), known.bpf));
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
    if let Some(known) = known().iter_mut().find(matches) {
        known.bpf = Some(objects);
    }
    Ok(objects)
}

/// Return the object compiled from exactly these sources for a target.
fn object_for(target: Target, sources: &Sources) -> Result<&'static [u8], CcFileError> {
    let file = sources.file().to_owned();
    let found = CompiledObject::get(sources.clone(), &Compiler::find(target, &file)?, true)?;
    if found.sources != *sources {
        return Err(CcFileError::Changed { file });
    }
    let bytes = fs::read(&found.object)
        .map_err(|error| CcFileError::Load { file, reason: error.to_string() })?;
    // Leaked, because the module keeps the object until the process ends.
    Ok(bytes.leak())
}

/// Compiled object of a file for a target.
struct CompiledObject {
    key: String,
    sources: Sources,
    object: PathBuf,
    compiled: Compiled,
    /// Temporary directory that contains the object, if the object is not in the cache.
    _build: Option<BuildDirectory>,
}

impl CompiledObject {
    /// Return the object from the cache if `use_cache` is set and the cache has it; else compile it.
    fn get(sources: Sources, compiler: &Compiler, use_cache: bool) -> Result<Self, CcFileError> {
        let mut sources = sources;
        for _ in 0..ATTEMPTS {
            let key = key(compiler, &sources);
            let [object, messages] = names(&key, compiler.target());
            if let Some(object) = cached(&object).filter(|_| use_cache) {
                let output = cached(&messages).and_then(|file| fs::read_to_string(file).ok());
                let compiled = Compiled { messages: output.unwrap_or_default(), is_new: false };
                return Ok(Self { key, sources, object, compiled, _build: None });
            }
            let build = BuildDirectory::open()?;
            let headers = build.headers()?;
            let compilation = compiler.start(&sources, &headers, &build.file(&object))?;
            let output = compilation.finish(sources.file());
            // If the file was saved during the compilation, either version may have been compiled.
            let now = Sources::read(Path::new(sources.file()))?;
            if now != sources {
                sources = now;
                continue;
            }
            let output = output?.messages;
            // The messages are stored first, so that every cached object has its messages.
            if !output.is_empty() && fs::write(build.file(&messages), &output).is_ok() {
                build.store(&messages);
            }
            let object = build.store(&object);
            let compiled = Compiled { messages: output, is_new: true };
            return Ok(Self { key, sources, object, compiled, _build: Some(build) });
        }
        Err(CcFileError::Changed { file: sources.file().to_owned() })
    }
}

/// Names in the cache of the object and of the compiler's messages.
fn names(key: &str, target: Target) -> [String; 2] {
    [format!("{key}.{}", target.extension()), format!("{key}.txt")]
}

/// Cache key of an object: a digest of all its inputs.
fn key(compiler: &Compiler, sources: &Sources) -> String {
    let what = format!("{}\n{}\n{:?}", compiler.identity(), *headers::DIGEST, sources.inputs());
    hex(&Sha256::digest(format!("{}\n{what}", sources.file())))[..32].to_owned()
}

fn open(compiled: &CompiledObject) -> Result<Library, CcFileError> {
    let file = compiled.sources.file().to_owned();
    // SAFETY: loading runs the initialisers of a C file that the user has chosen to run.
    unsafe { Library::open(Some(&compiled.object), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| CcFileError::Load { file, reason: error.to_string() })
}

fn adopt(library: Library, sources: &Sources) -> Result<&'static Module, CcFileError> {
    let file = sources.file();
    // SAFETY: the symbol is an address, used only after it has been found.
    let symbol = unsafe { library.get::<*const bindings::Module>(b"skyhop_module\0") };
    let Ok(symbol) = symbol else { return Err(CcFileError::NoModule { file: file.to_owned() }) };
    let native = symbol.into_raw().cast_const().cast::<bindings::Module>();
    // Never unloaded: connections may run the module as long as the process lives.
    std::mem::forget(library);
    // SAFETY: SKYHOP_MODULE of this skyhop's own header has defined the symbol, and the library stays loaded.
    Ok(unsafe { Module::adopt(file, sources.name(), native, sources.uses_announcements()) }?)
}

fn known() -> MutexGuard<'static, Vec<LoadedEntry>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}
