/* Runs one signature of a SavedModel with TensorFlow's C API: no Python, none of our code.
 *
 * loader MODEL INPUT OUTPUT ROWS WIDTH OUT_WIDTH < floats
 *
 * INPUT and OUTPUT are names of graph operations ("serving_default_y", "StatefulPartitionedCall"),
 * the output with ":index". ROWS x WIDTH numbers are read from standard input, ROWS x OUT_WIDTH are
 * printed, or the error's code and message; the exit status is then 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static void check(const TF_Status* status) {
  if (TF_GetCode(status) == TF_OK) return;
  printf("%d %s\n", (int)TF_GetCode(status), TF_Message(status));
  exit(3);
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int64_t rows = atoll(argv[4]), width = atoll(argv[5]);
  TF_Status* status = TF_NewStatus();
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(status);

  const int64_t dims[] = {rows, width};
  TF_Tensor* fed = TF_AllocateTensor(TF_FLOAT, dims, 2, sizeof(float) * rows * width);
  float* values = (float*)TF_TensorData(fed);
  for (int64_t i = 0; i < rows * width; ++i) {
    if (scanf("%f", &values[i]) != 1) return 2;
  }
  char* colon = strchr(argv[3], ':');
  if (colon == NULL) return 2;
  *colon = '\0';
  TF_Output input = {TF_GraphOperationByName(graph, argv[2]), 0};
  TF_Output output = {TF_GraphOperationByName(graph, argv[3]), atoi(colon + 1)};
  if (input.oper == NULL || output.oper == NULL) return 2;
  TF_Tensor* found = NULL;
  TF_SessionRun(session, NULL, &input, &fed, 1, &output, &found, 1, NULL, 0, NULL, status);
  check(status);

  const int64_t size = TF_TensorElementCount(found);
  if (TF_NumDims(found) != 2 || TF_Dim(found, 0) != rows || TF_Dim(found, 1) != atoll(argv[6])) {
    return 4;
  }
  for (int64_t i = 0; i < size; ++i) printf("%.9g\n", ((float*)TF_TensorData(found))[i]);
  return 0;
}
