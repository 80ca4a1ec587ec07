//! The certificates of a testbed cluster: one authority, and a certificate and key file for each
//! program that needs one. (The PKI of the Ziti controllers is another: [`crate::ziti`].)

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::paths;

/// What a certificate is issued for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subject<'a> {
    /// The common name: the user name in Kubernetes.
    pub(crate) common_name: &'a str,
    /// The organization: the group in Kubernetes.
    pub(crate) organization: Option<&'a str>,
    /// DNS names it serves.
    pub(crate) dns: Vec<String>,
    /// Addresses it serves.
    pub(crate) ips: Vec<IpAddr>,
}

/// The directory with the authority and all that it issued.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// Opens the PKI in that directory, creating the authority and the `ServiceAccount` key on first
    /// use.
    pub(crate) fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        let pki = Self { dir: dir.into() };
        if pki.ca().exists() {
            return Ok(pki);
        }
        let key = new_key()?;
        let certificate = authority()
            .self_signed(&key)
            .context("signing the cluster's authority")?;
        // P-256, which the API server takes for ServiceAccount tokens as well (ES256).
        let tokens = new_key()?;
        paths::write_private(&pki.service_account_key(), tokens.serialize_pem())?;
        paths::write(&pki.service_account_public_key(), tokens.public_key_pem())?;
        paths::write_private(&pki.ca_key(), key.serialize_pem())?;
        paths::write(&pki.ca(), certificate.pem())?;
        Ok(pki)
    }

    /// The authority's certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// The authority's key, which kube-controller-manager signs requests with.
    pub(crate) fn ca_key(&self) -> PathBuf {
        self.dir.join("ca.key")
    }

    /// The key that verifies `ServiceAccount` tokens. (The API server does not derive it from a
    /// private key in PKCS#8.)
    pub(crate) fn service_account_public_key(&self) -> PathBuf {
        self.dir.join("service-account.pub")
    }

    /// The key that signs `ServiceAccount` tokens.
    pub(crate) fn service_account_key(&self) -> PathBuf {
        self.dir.join("service-account.key")
    }

    /// The certificate of that name, see [`Pki::issue`].
    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.crt"))
    }

    /// The key of that name, see [`Pki::issue`].
    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.key"))
    }

    /// Issues a certificate for client and server use, as files `<name>.crt` and `<name>.key`,
    /// unless it is there.
    pub(crate) fn issue(&self, name: &str, subject: &Subject<'_>) -> Result<()> {
        if self.certificate(name).exists() {
            return Ok(());
        }
        let ca_key = KeyPair::from_pem(&paths::read(&self.ca_key())?)
            .context("reading the authority's key")?;
        let issuer = Issuer::new(authority(), ca_key);
        let key = new_key()?;
        let mut params = CertificateParams::new(subject.dns.clone())
            .with_context(|| format!("naming certificate {name}"))?;
        params
            .subject_alt_names
            .extend(subject.ips.iter().copied().map(SanType::IpAddress));
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, subject.common_name);
        if let Some(organization) = subject.organization {
            params
                .distinguished_name
                .push(DnType::OrganizationName, organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let certificate = params
            .signed_by(&key, &issuer)
            .with_context(|| format!("signing certificate {name}"))?;
        paths::write_private(&self.key(name), key.serialize_pem())?;
        paths::write(&self.certificate(name), certificate.pem())
    }

    /// Writes a kubeconfig that logs in with the certificate of that name. Everything is embedded,
    /// so that the file can be moved.
    pub(crate) fn kubeconfig(&self, name: &str, server: &str, to: &Path) -> Result<()> {
        use base64::Engine;
        let embed = |path: &Path| -> Result<String> {
            let bytes = std::fs::read(path).with_context(paths::reading(path))?;
            Ok(base64::engine::general_purpose::STANDARD.encode(bytes))
        };
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
            "clusters": [{"name": "testbed", "cluster": {
                "server": server,
                "certificate-authority-data": embed(&self.ca())?,
            }}],
            "users": [{"name": name, "user": {
                "client-certificate-data": embed(&self.certificate(name))?,
                "client-key-data": embed(&self.key(name))?,
            }}],
        });
        let text = serde_json::to_string_pretty(&config).context("writing a kubeconfig")?;
        paths::write_private(to, text)
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "testbed-authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate().context("generating a P-256 key")
}
