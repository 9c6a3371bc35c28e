# The workshop on AMD's image with ROCm and TensorFlow. compose.yaml builds it. Never built.
FROM rocm/tensorflow:rocm10.1-ubuntu24.04-py3.12-tf2.21

USER root
RUN useradd --create-home --uid 10001 learner \
    && install --directory --owner=learner /home/learner/workshop /home/learner/workshop/my-lessons
WORKDIR /home/learner/workshop
COPY --chown=learner . .
# AMD's TensorFlow stays: the workshop's own packages ask for none.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --editable .

USER learner
EXPOSE 8888
CMD ["docker/start"]
