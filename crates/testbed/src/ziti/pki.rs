//! The certificates of a test network: one EC P-256 authority, which is the root of trust and
//! signs enrollments as well, and one certificate for each controller.
//!
//! Ziti reads who a controller is from its certificate: the common name is its id, and the URI
//! `spiffe://<trust domain>/controller/<id>` must agree with it. Without, a cluster member panics.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::paths;

// File names below a controller's PKI directory, as `super::config` refers to them.

/// What the network is trusted by.
pub const CA: &str = "ca.crt";
pub(super) const SIGNER: &str = "signer.crt";
pub(super) const SIGNER_KEY: &str = "signer.key";
pub(super) const CERT: &str = "controller.crt";
/// The controller's certificate, and what is between it and the authority.
pub const CHAIN: &str = "controller.chain.crt";
/// Its key.
pub const KEY: &str = "controller.key";

/// The authority of a network.
#[derive(Debug, Clone)]
pub struct Authority {
    trust_domain: String,
    /// Its certificate, PEM: what everybody trusts.
    pub cert_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
}

/// What a controller is, knows and signs with, in PEM.
#[derive(Debug, Clone)]
pub struct ControllerPki {
    /// What it trusts.
    pub ca_pem: String,
    /// The certificate that enrolled certificates are signed with, and its chain.
    pub signer_pem: String,
    /// The signer's key.
    pub signer_key_pem: String,
    /// The controller's certificate, for server and client use.
    pub cert_pem: String,
    /// The same with its chain.
    pub chain_pem: String,
    /// The controller's key.
    pub key_pem: String,
}

impl Authority {
    /// A new authority for `trust_domain`.
    pub fn new(trust_domain: &str) -> Result<Self> {
        let key = KeyPair::generate().context("making the key of a Ziti authority")?;
        let certificate = authority(trust_domain)?
            .self_signed(&key)
            .context("signing a Ziti authority")?;
        Ok(Self {
            trust_domain: trust_domain.to_owned(),
            cert_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// A certificate for the controller `id`, valid for these names. Every address under which it
    /// is reached or advertised must be among them.
    pub fn controller(&self, id: &str, dns: &[String], ips: &[IpAddr]) -> Result<ControllerPki> {
        let mut params = CertificateParams::new(dns.to_vec())
            .with_context(|| format!("the DNS names of controller {id}: {dns:?}"))?;
        params.distinguished_name = common_name(id);
        params
            .subject_alt_names
            .extend(ips.iter().copied().map(SanType::IpAddress));
        let uri = format!("spiffe://{}/controller/{id}", self.trust_domain);
        params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let issuer_key = KeyPair::from_pem(&self.key_pem).context("the authority's key")?;
        let issuer = Issuer::new(authority(&self.trust_domain)?, issuer_key);
        let key = KeyPair::generate().context("making a controller's key")?;
        let certificate = params
            .signed_by(&key, &issuer)
            .with_context(|| format!("signing the certificate of controller {id}"))?;
        let cert_pem = certificate.pem();
        Ok(ControllerPki {
            ca_pem: self.cert_pem.clone(),
            signer_pem: self.cert_pem.clone(),
            signer_key_pem: self.key_pem.clone(),
            chain_pem: format!("{cert_pem}{}", self.cert_pem),
            cert_pem,
            key_pem: key.serialize_pem(),
        })
    }
}

impl ControllerPki {
    /// The files of a controller's PKI directory, by name: for a Secret or a directory.
    pub fn files(&self) -> [(&'static str, String); 6] {
        [
            (CA, self.ca_pem.clone()),
            (SIGNER, self.signer_pem.clone()),
            (SIGNER_KEY, self.signer_key_pem.clone()),
            (CERT, self.cert_pem.clone()),
            (CHAIN, self.chain_pem.clone()),
            (KEY, self.key_pem.clone()),
        ]
    }

    /// Writes [`Self::files`] into `dir`, readable by the owner alone.
    pub fn write_to(&self, dir: &Path) -> Result<()> {
        for (name, content) in self.files() {
            paths::write_private(&dir.join(name), content)?;
        }
        Ok(())
    }
}

fn authority(trust_domain: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("{trust_domain} root"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let uri = format!("spiffe://{trust_domain}");
    params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}
